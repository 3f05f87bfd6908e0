"""What runs handlers: threads, or a loop. Both begin on the thread that called `serve`, the main thread: a child with
one slot runs its handler there, where signals, `sqlite3` and the like want to be used."""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from typing import Callable, Optional

from . import _run, _wire
from .task import Task

#: Called with the answer of a run, once for each.
Answer = Callable[["Flight", _wire.Word], None]


class Flight:
    """A task in hand."""

    def __init__(self, request: int, task: Task) -> None:
        self.request = request
        self.task = task
        self.running: Optional[asyncio.Task[_wire.Word]] = None


class Threads:
    """One thread a slot."""

    def __init__(self, handler: _run.Handler, slots: int, answer: Answer) -> None:
        self._handler, self._slots, self._answer = handler, slots, answer
        self._flights: SimpleQueue[Optional[Flight]] = SimpleQueue()

    def work(self, up: Callable[[], None]) -> None:
        """Runs what is started, until `finish`; `up` is called once it can be."""
        others = [threading.Thread(target=self._serve, daemon=True) for _ in range(self._slots - 1)]
        for thread in others:
            thread.start()
        up()
        self._serve()
        for thread in others:
            thread.join()

    def _serve(self) -> None:
        for flight in iter(self._flights.get, None):
            # One that was called off while it waited for a thread never runs.
            early = flight.task.cancelled.is_set()
            self._answer(flight, _run.called_off(flight.task) if early else _run.run(self._handler, flight.task))

    def start(self, flight: Flight) -> None:
        self._flights.put(flight)

    def cancel(self, flight: Flight) -> None:
        """A thread cannot be stopped; its handler looks at `Task.cancelled`."""

    def finish(self) -> None:
        for _ in range(self._slots):
            self._flights.put(None)


class Loop:
    """All of them in one asyncio loop."""

    def __init__(self, handler: _run.Handler, answer: Answer) -> None:
        self._handler, self._answer = handler, answer
        self._loop: asyncio.AbstractEventLoop
        self._finished: asyncio.Event

    def work(self, up: Callable[[], None]) -> None:
        asyncio.run(self._work(up))

    async def _work(self, up: Callable[[], None]) -> None:
        self._loop, self._finished = asyncio.get_running_loop(), asyncio.Event()
        up()
        await self._finished.wait()

    def start(self, flight: Flight) -> None:
        self._loop.call_soon_threadsafe(self._begin, flight)

    def _begin(self, flight: Flight) -> None:
        flight.running = self._loop.create_task(_run.run_async(self._handler, flight.task))
        flight.running.add_done_callback(lambda running: self._ended(flight, running))

    def _ended(self, flight: Flight, running: asyncio.Task[_wire.Word]) -> None:
        # One that was cancelled before its first step never ran, and is to be answered all the same.
        self._answer(flight, _run.called_off(flight.task) if running.cancelled() else running.result())

    def cancel(self, flight: Flight) -> None:
        self._loop.call_soon_threadsafe(lambda: flight.running.cancel() if flight.running else None)

    def finish(self) -> None:
        self._loop.call_soon_threadsafe(self._finished.set)
