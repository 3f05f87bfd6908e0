"""What a handler knows of its run."""

from __future__ import annotations

import base64
import threading
import time
from typing import Any, Callable, Mapping, Optional, Union

from . import _follow_up, _wire
from .errors import Cancelled


class Task:
    """One run of a task."""

    id: str
    agent: str
    queue: str
    #: `urgent`, `high`, `normal` or `low`.
    priority: str
    tenant: str
    #: Which attempt this is, from 1.
    attempt: int
    #: How many runs were lost with their worker.
    losses: int
    #: Grows with every delivery: give it to whatever you write to, and let it refuse older ones.
    fence: int
    #: An idempotency key for the outside, the same over all attempts.
    key: str
    #: When the run is out of time, by `time.monotonic()`.
    deadline: float
    #: The trace that the run belongs to, as W3C's `traceparent` says it; None: of none.
    traceparent: Optional[str]
    #: The payload: the value, if it is JSON, else its bytes.
    payload: Any
    #: Set when the run is to stop: called off, out of time, lease lost, the worker stopping. The child is ended if the
    #: handler does not return within 200 ms. An async handler is cancelled as well.
    cancelled: threading.Event

    def __init__(self, fields: Mapping[str, Any], say: Callable[[_wire.Word], None]) -> None:
        self.id = fields["id"]
        self.agent = fields["agent"]
        self.queue = fields["queue"]
        self.priority = fields["priority"]
        self.tenant = fields["tenant"]
        self.attempt = fields["attempt"]
        self.losses = fields["losses"]
        self.fence = fields["fence"]
        self.key = fields["key"]
        self.deadline = time.monotonic() + fields["deadline_ms"] / 1000
        self.traceparent = fields.get("traceparent")
        encoded = fields.get("payload_base64")
        self.payload = fields["payload"] if encoded is None else base64.b64decode(encoded)
        self.cancelled = threading.Event()
        self._say = say
        self._outbox = _follow_up.Outbox()
        # Cancelled because this program is to end, which is no fault of the task's.
        self._stopping = False

    def __repr__(self) -> str:
        # Without the payload, which belongs in no log.
        return f"Task(id={self.id!r}, agent={self.agent!r}, attempt={self.attempt})"

    def remaining(self) -> float:
        """How many seconds are left; 0 at least."""
        return max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Raises `Cancelled` if the run is called off: for loops of handlers that are not async."""
        if self.cancelled.is_set():
            raise Cancelled("called off")

    def progress(self, text: str) -> None:
        """Says how far the run is; 256 characters are kept."""
        self._say(("progress", _wire.encode(_wire.text(text, _wire.PROGRESS_CHARS_MAX))))

    def spend(self, *, tokens: int = 0, cost_usd: Union[float, str] = 0) -> None:
        """Says that the run has used this, beside what it has said before: budgets are charged with all of it. Say it after each
        call of a model. US dollars as a text, "0.02", are exact to the millionth.
        """
        self._say(_wire.spend(tokens, cost_usd))

    def emit(self, text: str) -> None:
        """Gives out a part of the result, or of a log, while the run goes on: `producer tail` follows it. It is kept for
        an hour, the newest 4 MiB. Nothing is added to it: say line breaks yourself.
        """
        for word in _wire.output(text):
            self._say(word)

    def submit(
        self,
        agent: str,
        payload: object = b"",
        *,
        id: Optional[str] = None,
        queue: Optional[str] = None,
        priority: Optional[str] = None,
        tenant: Optional[str] = None,
        delay: Optional[float] = None,
        order_key: Optional[str] = None,
        key: Optional[str] = None,
        max_attempts: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> None:
        """Hands in a follow-up, with this run's success and in the same step: a run that fails hands in nothing, and
        one that is repeated cannot double it. `delay` and `timeout` are in seconds.

        Raises `Dead` if it is not valid.
        """
        options = {"id": id, "queue": queue, "priority": priority, "tenant": tenant, "order_key": order_key, "key": key}
        numbers = {"delay": delay, "max_attempts": max_attempts, "timeout": timeout}
        self._say(("submit", self._outbox.add(agent, payload, options, numbers)))
