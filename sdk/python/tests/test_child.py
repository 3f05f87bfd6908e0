"""Whole children, spoken to over pipes as the worker does."""

from __future__ import annotations

import base64
import json
import unittest
from typing import Any, Dict, List

from .child import SOURCE, Child

HEAD = """
import asyncio, os, subprocess, sys, threading, time
from tidemill import Cancelled, Dead, Retry, Task, Throttled, serve
"""
ECHO = HEAD + "serve(lambda task: task.payload)"


def handler(body: str) -> str:
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return f"{HEAD}\ndef handle(task: Task) -> object:\n{lines}\nserve(handle)"


def raw(child: Child, payload: bytes) -> bytes:
    """A task with a payload as it is written."""
    return child.task_line("PAYLOAD").replace(b'"PAYLOAD"', payload)


class Answers(unittest.TestCase):
    def test_it_is_ready_and_answers_one_task_after_the_other(self) -> None:
        with Child(ECHO) as child:
            payloads: List[object] = [{"a": [1, None, "ü"]}, None, [], "", 0, False, 1.5]
            for payload in payloads:
                self.assertEqual(child.ask(payload), {"done": payload})

    def test_a_task_says_what_it_is(self) -> None:
        body = """
t = task
left = t.remaining()
assert 0 < left <= 5 and abs(t.deadline - time.monotonic() - left) < 1
return [t.id, t.agent, t.queue, t.priority, t.tenant, t.attempt, t.losses, t.fence, t.key, t.cancelled.is_set(),
        repr(t)]
"""
        with Child(handler(body)) as child:
            said = child.ask("secret", tenant="acme", attempt=2, losses=1, key="k", deadline_ms=5_000)
            shown = "Task(id='task-1', agent='words', attempt=2)"
            told = ["task-1", "words", "default", "normal", "acme", 2, 1, 41, "k", False, shown]
            self.assertEqual(said["done"], told)

    def test_bytes_come_and_go_as_base64(self) -> None:
        with Child(handler("assert isinstance(task.payload, bytes)\nreturn task.payload[::-1]")) as child:
            said = child.ask(base64.b64encode(bytes(range(256))))
            self.assertEqual(base64.b64decode(said["done_base64"]), bytes(range(256))[::-1])

    def test_line_separators_of_unicode_end_no_line(self) -> None:
        text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\r\nh"
        with Child(ECHO) as child:
            self.assertEqual(child.ask(text), {"done": text})

    def test_a_line_of_a_mebibyte_comes_and_goes(self) -> None:
        text = "ü" * (524_288 - 1)
        with Child(ECHO) as child:
            self.assertEqual(child.ask(text), {"done": text}, "1 MiB with its quotes")
            said = child.ask(text + "x")
            self.assertEqual(said["dead"]["error"], "the result has 1048577 bytes; at most 1048576 are allowed")

    def test_a_result_that_is_not_json_is_dead_and_says_why(self) -> None:
        with Child(handler("return {'x': {1: object(), 2: float('nan')}[task.payload]}")) as child:
            self.assertIn("the result is not JSON: Object of type object", child.ask(1)["dead"]["error"])
            self.assertIn("the result is not JSON: Out of range", child.ask(2)["dead"]["error"])

    def test_halves_of_surrogate_pairs_do_not_spoil_a_line(self) -> None:
        body = """
task.progress('p' + task.payload)
if len(task.payload) > 1: raise Dead('e' + task.payload)
return task.payload
"""
        with Child(handler(body)) as child:
            child.write(raw(child, b'"\\ud800"'))
            self.assertEqual(child.line(), b'{"request":1,"progress":"p\\\\ud800"}\n')
            self.assertEqual(child.line(), b'{"request":1,"done":"\\ud800"}\n')
            child.write(raw(child, b'"\\udc80x"'))
            self.assertEqual(child.hear(), {"request": 2, "progress": "p\\udc80x"})
            self.assertEqual(child.hear(), {"request": 2, "dead": {"error": "e\\udc80x"}})

    def test_payloads_beyond_python_are_dead_and_the_child_lives(self) -> None:
        with Child(handler("return type(task.payload).__name__")) as child:
            child.write(raw(child, b"[" * 200_000 + b"]" * 200_000))
            self.assertIn("Python cannot read the payload: Recursion", child.hear()["dead"]["error"])
            child.write(raw(child, b"1" * 5_000))
            said = child.hear()
            # The first versions of Python 3.9 and 3.10 take numbers of any length.
            self.assertTrue(said.get("done") == "int" or "digits" in said["dead"]["error"], said)
            self.assertEqual(child.ask("on"), {"done": "str"})


class Failures(unittest.TestCase):
    def test_each_way_to_fail_has_its_word(self) -> None:
        body = """
from datetime import timedelta
raise {
    "retry": lambda: Retry("r"), "later": lambda: Retry("r", after=0.0015),
    "delta": lambda: Retry("r", after=timedelta(days=900)), "throttled": lambda: Throttled("t"),
    "until": lambda: Throttled("t", after=2), "dead": lambda: Dead("d"),
    "cause": lambda: Retry(KeyError("k")), "empty": lambda: ValueError(),
    "long": lambda: ValueError("x" * 3_000_000), "exit": lambda: SystemExit(3),
    "cancel": lambda: asyncio.CancelledError(),
}[task.payload]()
"""
        expected = {
            "retry": {"retry": {"error": "r"}},
            "later": {"retry": {"error": "r", "after_ms": 2}},
            "delta": {"retry": {"error": "r", "after_ms": 604_800_000}},
            "throttled": {"throttled": {"error": "t"}},
            "until": {"throttled": {"error": "t", "after_ms": 2_000}},
            "dead": {"dead": {"error": "d"}},
            "cause": {"retry": {"error": "KeyError: 'k'"}},
            "empty": {"retry": {"error": "ValueError"}},
            "long": {"retry": {"error": "ValueError: " + "x" * 988}},
            "exit": {"retry": {"error": "SystemExit: 3"}},
            "cancel": {"retry": {"error": "CancelledError"}},
        }
        for slots in (1, 2):
            with Child(handler(body), slots=slots) as child:
                for payload, said in expected.items():
                    self.assertEqual(child.ask(payload), said, payload)

    def test_an_exception_has_its_trace_on_standard_error(self) -> None:
        with Child(handler("return task.payload['text']")) as child:
            self.assertEqual(child.ask({}), {"retry": {"error": "KeyError: 'text'"}})
            self.assertIn("task task-1, attempt 1:\nTraceback", child.errors())

    def test_something_to_await_is_told_to_be_declared(self) -> None:
        with Child(HEAD + "async def h(task): pass\nserve(lambda task: h(task))") as child:
            self.assertIn("is not declared `async def`", child.ask()["dead"]["error"])


class Prints(unittest.TestCase):
    def test_what_is_printed_goes_to_standard_error_and_is_no_line(self) -> None:
        body = """
print("printed", flush=True)
sys.__stdout__.write("written\\n")
os.write(1, b"to the descriptor\\n")
subprocess.run(["echo", "by a program"], check=True)
subprocess.run(["cat"], check=True)                    # its input is empty: it does not eat ours
return sys.stdin.read()
"""
        code = HEAD + "sys.stdout.reconfigure(write_through=False)\nprint('early', end='')\n" + handler(body)
        with Child(code) as child:
            self.assertEqual(child.ask(), {"done": ""})
            self.assertEqual(child.ask(), {"done": ""})
            for text in ("early", "printed\n", "written\n", "to the descriptor\n", "by a program\n"):
                self.assertIn(text, child.errors())


class Words(unittest.TestCase):
    def test_progress_and_follow_ups_come_before_the_answer(self) -> None:
        body = """
task.progress("ü" * 300)
task.submit("check", {"n": 1})
task.submit("check", b"\\xff", id="i", queue="q", priority="high", tenant="t", delay=1.5, order_key="o",
            key="k", max_attempts=2, timeout=3)
task.submit("check")
"""
        with Child(handler(body)) as child:
            request = child.task()
            said = [child.hear() for _ in range(5)]
            self.assertEqual([one.pop("request") for one in said], [request] * 5)
            full = {"agent": "check", "id": "i", "queue": "q", "priority": "high", "tenant": "t", "delay_ms": 1_500,
                    "order_key": "o", "key": "k", "max_attempts": 2, "timeout_ms": 3_000, "payload_base64": "/w=="}  # fmt: skip
            self.assertEqual(
                said,
                [
                    {"progress": "ü" * 256},
                    {"submit": {"agent": "check", "payload": {"n": 1}}},
                    {"submit": full},
                    {"submit": {"agent": "check", "payload_base64": ""}},
                    {"done": None},
                ],
            )

    def test_output_is_said_in_lines_that_the_worker_can_read(self) -> None:
        body = """
task.emit("to be\\n")
task.emit("")
task.emit("\\ud800")
task.emit("\\x01" * 100_000)
"""
        with Child(handler(body)) as child:
            child.task()
            said = []
            while "done" not in (one := child.hear()):
                said.append(one["output"])
        self.assertEqual(said[:2], ["to be\n", "\\ud800"])
        self.assertEqual([len(one) for one in said[2:]], [1 << 16, 100_000 - (1 << 16)])

    def test_the_handler_of_the_agent_is_chosen(self) -> None:
        code = HEAD + "serve({'words': lambda task: 1, 'lines': lambda task: 2})"
        with Child(code, agent="lines") as child:
            self.assertEqual(child.ask(), {"done": 2})
        with Child(code, hello=False) as child:
            child.say({"hello": {"protocol": 1, "agent": "other", "slots": 1}})
            self.assertEqual(child.ended(), 2)
            self.assertIn("there is no handler for the agent other", child.errors())


class Input(unittest.TestCase):
    def test_what_is_not_of_the_protocol_ends_it_with_a_reason(self) -> None:
        for line, why in (
            (b"nonsense\n", "is not JSON"),
            (b"[]\n", "is no object"),
            (b'{"task":{"request":1}}\n', "is not of the protocol"),
            (b'{"task":{"request":1,"id":\n', "is not JSON"),
        ):
            with Child(ECHO) as child:
                child.write(line)
                self.assertEqual(child.ended(), 2)
                self.assertIn(why, child.errors())

    def test_no_hello_and_another_protocol_end_it_before_it_is_ready(self) -> None:
        for line, why in (
            (b"{}\n", "no hello"),
            (b'{"hello":{"protocol":2,"agent":"words","slots":1}}\n', "the worker speaks protocol 2"),
        ):
            with Child(ECHO, hello=False) as child:
                child.write(line)
                self.assertEqual(child.ended(), 2)
                self.assertIn(why, child.errors())

    def test_what_a_later_worker_may_say_is_passed_over(self) -> None:
        with Child(ECHO) as child:
            child.say({"weather": "fine"})
            child.say({"cancel": 77})
            self.assertEqual(child.ask(1, something="new"), {"done": 1})

    def test_lines_may_come_in_pieces_and_many_at_once(self) -> None:
        with Child(ECHO, slots=3, hello=False) as child:
            child.write(b'{"hello":{"protocol":1,"agent":"words","slots":3}}\n{"cancel":1}\n{"can')
            self.assertEqual(child.hear(), {"ready": True})
            child.write(b'cel":2}\n')
            for number in (1, 2, 3):
                child.task(number)
            self.assertEqual(child.hear_all(3), {n: {"done": n} for n in (1, 2, 3)})


class Examples(unittest.TestCase):
    def test_the_example_counts_words(self) -> None:
        example = SOURCE.parent / "examples" / "words.py"
        with Child(f"import runpy; runpy.run_path({json.dumps(str(example))}, run_name='__main__')") as child:
            self.assertEqual(child.ask({"text": "to be or not to be"}), {"progress": "counting"})
            self.assertEqual(child.hear(), {"request": 1, "done": {"words": 6}})
            self.assertEqual(child.ask(b"AAAA"), {"dead": {"error": "the payload has no text"}})

    def test_the_examples_of_the_document_work(self) -> None:
        document = (SOURCE.parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
        words, tell, tests = (block.split("```")[0] for block in document.split("```python\n")[1:])
        with Child(words) as child:
            self.assertEqual(child.ask({"text": "to be or not to be"}), {"done": {"words": 6}})
            self.assertEqual(child.ask(b"AAAA"), {"dead": {"error": "the payload has no text"}})
        with Child(tell) as child:
            child.task({"text": "to be", "pause": 0})
            said = [child.hear() for _ in range(5)]
            self.assertEqual([one.pop("request") for one in said], [1] * 5)
            self.assertEqual(
                said,
                [{"output": "to\n"}, {"progress": "1 of 2"}, {"output": "be\n"}, {"progress": "2 of 2"}, {"done": {"words": 2}}],
            )
        names: Dict[str, Any] = {}
        # A test imports the handler; here it is defined, and not served.
        exec(words.replace("serve(words)", "") + tests.replace("from words import words", ""), names)
        names["test_words"]()


if __name__ == "__main__":
    unittest.main()
