"""`tidemill.testing`, and follow-ups that are not valid."""

from __future__ import annotations

import asyncio
import unittest
from typing import Any, Dict, List

from tidemill import Dead, Retry, Task, Throttled, testing


class Testing(unittest.TestCase):
    def test_it_tells_outcome_progress_and_follow_ups(self) -> None:
        def words(task: Task) -> object:
            task.progress("counting")
            task.spend(tokens=3, cost_usd=0.5)
            task.spend(tokens=4)
            task.spend(cost_usd="0.25")
            task.emit("to\n")
            task.emit("")
            task.emit("be")
            task.submit("check", {"id": task.id}, delay=2)
            return {"words": len(task.payload["text"].split()), "attempt": task.attempt}

        run = testing.run(words, {"text": "to be"}, id="t", attempt=3)
        self.assertEqual((run.outcome, run.result), ("done", {"words": 2, "attempt": 3}))
        self.assertEqual((run.error, run.after, run.progress), (None, None, ["counting"]))
        self.assertEqual((run.tokens, run.cost_usd), (7, 0.75))
        self.assertEqual((run.output, testing.run(lambda task: None).output), ("to\nbe", ""))
        self.assertEqual(run.follow_ups, [{"agent": "check", "delay_ms": 2_000, "payload": {"id": "t"}}])

    def test_what_a_run_has_used_is_an_amount(self) -> None:
        wrong: List[Dict[str, Any]] = [{"tokens": -1}, {"tokens": 1.5}, {"tokens": True}]
        wrong += [{"cost_usd": -1}, {"cost_usd": "x"}, {"cost_usd": None}]
        for used in wrong:

            def spends(task: Task, used: Dict[str, Any] = used) -> None:
                task.spend(**used)

            self.assertEqual(testing.run(spends).outcome, "retry", used)

    def test_a_trace_is_handed_on(self) -> None:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        self.assertEqual(testing.run(lambda task: task.traceparent, traceparent=trace).result, trace)
        self.assertIsNone(testing.run(lambda task: task.traceparent).result)

    def test_it_tells_failures(self) -> None:
        def fail(task: Task) -> object:
            raise {"r": Retry("r"), "t": Throttled("t", after=2), "d": Dead("d"), "e": KeyError("k")}[task.payload]

        seen = {payload: testing.run(fail, payload) for payload in "rted"}
        self.assertEqual(
            {payload: (run.outcome, run.error, run.after) for payload, run in seen.items()},
            {
                "r": ("retry", "r", None),
                "t": ("throttled", "t", 2.0),
                "e": ("retry", "KeyError: 'k'", None),
                "d": ("dead", "d", None),
            },
        )

    def test_payloads_and_results_go_the_way_of_the_protocol(self) -> None:
        self.assertEqual(testing.run(lambda task: task.payload, (1, 2)).result, [1, 2])
        self.assertEqual(testing.run(lambda task: task.payload, b"\xff").result, b"\xff")
        self.assertEqual(testing.run(lambda task: object()).outcome, "dead")

    def test_runs_can_be_called_off(self) -> None:
        def pages(task: Task) -> object:
            for page in range(9):
                task.progress(f"page {page}")
                task.check()
            return "all"

        async def asynchronous(task: Task) -> object:
            task.progress("asking")
            await asyncio.sleep(60)
            return "all"

        self.assertEqual(testing.run(pages).result, "all")
        run = testing.run(pages, cancel_at="page 3")
        self.assertEqual((run.outcome, run.error, run.progress[-1]), ("retry", "called off", "page 3"))
        self.assertEqual(testing.run(pages, cancelled=True).progress, ["page 0"])
        for run in (testing.run(asynchronous, cancel_at="asking"), testing.run(asynchronous, cancelled=True)):
            self.assertEqual((run.outcome, run.error, run.progress), ("retry", "called off", ["asking"]))

    def test_follow_ups_that_are_not_valid_are_dead_before_they_are_said(self) -> None:
        cases: Dict[str, Dict[str, Any]] = {
            "agent 'a b'": {"agent": "a b"},
            "agent ''": {"agent": ""},
            "id 'a.b'": {"id": "a.b"},
            "queue 'a/b'": {"queue": "a/b"},
            "queue 'a\\n'": {"queue": "a\n"},
            "priority is 'max'": {"priority": "max"},
            "tenant must": {"tenant": "x" * 256},
            "key must": {"key": ""},
            "order_key must": {"order_key": "\ud800"},
            "delay is -1": {"delay": -1},
            "delay is '2'": {"delay": "2"},
            "timeout is nan": {"timeout": float("nan")},
            "max_attempts is 0": {"max_attempts": 0},
            "max_attempts is 1.5": {"max_attempts": 1.5},
            "max_attempts is True": {"max_attempts": True},
            "payload is not JSON": {"payload": object()},
            "payload has 1048577 bytes": {"payload": bytes((1 << 20) + 1)},
        }
        for why, options in cases.items():
            run = testing.run(lambda task, given=options: task.submit(**{"agent": "a", **given}))  # type: ignore[misc]
            self.assertEqual((run.outcome, run.follow_ups), ("dead", []), why)
            self.assertIn(f"a follow-up is not valid: its {why}", run.error or "")

    def test_there_is_an_end_to_follow_ups(self) -> None:
        def many(task: Task) -> object:
            for _ in range(task.payload["count"]):
                task.submit("a", "x" * task.payload["size"])
            return None

        self.assertEqual(len(testing.run(many, {"count": 256, "size": 1}).follow_ups), 256)
        for payload in ({"count": 257, "size": 1}, {"count": 5, "size": 1_000_000}):
            self.assertIn("at most 256 of them, with 4 MiB", testing.run(many, payload).error or "")
