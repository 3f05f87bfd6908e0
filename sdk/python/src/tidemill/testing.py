"""Runs a task through a handler without a worker.

    from tidemill import testing

    def test_words():
        run = testing.run(words, {"text": "to be"})
        assert run.outcome == "done" and run.result == {"words": 2}
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from . import _run, _wire
from .task import Task

__all__ = ["Run", "run"]


@dataclass
class Run:
    """What the worker would have been told."""

    #: `done`, `retry`, `throttled` or `dead`.
    outcome: str = ""
    #: Of a success: what JSON makes of it, or bytes.
    result: Any = None
    #: Of any other outcome: why.
    error: Optional[str] = None
    #: After how many seconds it wants to run again; None: not said.
    after: Optional[float] = None
    progress: List[str] = field(default_factory=list)
    # All that it said that it used.
    tokens: int = 0
    cost_usd: float = 0.0
    #: All that was given out by `emit`.
    output: str = ""
    #: Follow-ups, as in the protocol's `submit`: `agent`, `payload` or `payload_base64`, `delay_ms`, and so on. They
    #: count only if the outcome is `done`.
    follow_ups: List[Dict[str, Any]] = field(default_factory=list)


def run(
    handler: _run.Handler,
    payload: object = None,
    *,
    id: str = "test",
    agent: str = "test",
    queue: str = "default",
    priority: str = "normal",
    tenant: str = "",
    attempt: int = 1,
    losses: int = 0,
    fence: int = 1,
    key: Optional[str] = None,
    traceparent: Optional[str] = None,
    timeout: float = 300.0,
    cancelled: bool = False,
    cancel_at: Optional[str] = None,
) -> Run:
    """Runs a handler on a payload: bytes as they are, anything else by way of JSON.

    It is called off as it begins if `cancelled`, or when it says the progress `cancel_at`. Time is not watched.
    """
    fields: Dict[str, Any] = {
        "id": id,
        "agent": agent,
        "queue": queue,
        "priority": priority,
        "tenant": tenant,
        "attempt": attempt,
        "losses": losses,
        "fence": fence,
        "key": id if key is None else key,
        "deadline_ms": timeout * 1000,
    }
    if traceparent is not None:
        fields["traceparent"] = traceparent
    if isinstance(payload, (bytes, bytearray, memoryview)):
        fields["payload_base64"] = _wire.base64_text(payload)
    else:
        fields["payload"] = json.loads(_wire.encode(payload))
    seen = Run()
    cancel: List[Any] = []

    def hear(word: _wire.Word) -> None:
        kind, value = word
        said = json.loads(value)
        if kind == "progress":
            seen.progress.append(said)
            if said == cancel_at:
                call_off()
        elif kind == "spend":
            seen.tokens += said["tokens"]
            seen.cost_usd += float(said["cost_usd"])
        elif kind == "output":
            seen.output += said
        else:
            seen.follow_ups.append(said)

    def call_off() -> None:
        task.cancelled.set()
        for stop in cancel:
            stop()

    task = Task(fields, hear)
    if _run.is_async(handler):
        word = asyncio.run(_in_a_loop(handler, task, cancel, cancelled))
    else:
        if cancelled:
            call_off()
        word = _run.run(handler, task)
    _note(seen, word)
    return seen


async def _in_a_loop(handler: _run.Handler, task: Task, cancel: List[Any], cancelled: bool) -> _wire.Word:
    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(_run.run_async(handler, task))
    cancel.append(lambda: loop.call_soon_threadsafe(running.cancel))
    if cancelled:
        # It takes its first step before: else there would be nothing to test.
        await asyncio.sleep(0)
        task.cancelled.set()
        running.cancel()
    await asyncio.wait([running])
    return _run.called_off(task) if running.cancelled() else running.result()


def _note(seen: Run, word: _wire.Word) -> None:
    kind, value = word
    said = json.loads(value)
    if kind in ("done", "done_base64"):
        seen.outcome = "done"
        seen.result = said if kind == "done" else base64.b64decode(said)
        return
    seen.outcome, seen.error = kind, said["error"]
    after = said.get("after_ms")
    seen.after = None if after is None else after / 1000
