"""Gives a text out word by word: {"text": "to be or not to be", "pause": 0.5}; follow it with `producer tail ID`"""

from tidemill import Dead, Task, serve


def tell(task: Task) -> object:
    try:
        words, pause = str(task.payload["text"]).split(), float(task.payload.get("pause", 0))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Dead("the payload has no text") from None
    for said, word in enumerate(words, 1):
        task.emit(word + "\n")
        task.progress(f"{said} of {len(words)}")
        task.cancelled.wait(pause)
        task.check()
    return {"words": len(words)}


if __name__ == "__main__":
    serve(tell)
