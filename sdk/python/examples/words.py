"""Counts words: {"text": "to be or not to be"} -> {"words": 6}"""

from tidemill import Dead, Task, serve


def words(task: Task) -> object:
    try:
        text = task.payload["text"]
    except (KeyError, TypeError):
        raise Dead("the payload has no text") from None
    task.progress("counting")
    print("this goes to the worker's log")
    return {"words": len(text.split())}


if __name__ == "__main__":
    serve(words)
