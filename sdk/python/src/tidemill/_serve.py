"""The child: reads what the worker says, has it run, and ends when it should."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import sys
import threading
import time
import traceback
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Union

from . import _wire
from ._crew import Flight, Loop, Threads
from ._pipes import Lines, Sink, take_over
from ._run import Handler, is_async
from .task import Task

PROTOCOL = 1
#: How long running tasks may go on after the end of input. The worker sends SIGTERM well before.
_END_WITHIN = 1.0
#: How long they may take once they are called off, before we end without them. The worker kills after 200 ms; this is
#: for a child that has lost its worker, whose tasks will be run by another once its lease is over.
_STOP_WITHIN = 1.0
_TERM = bytes([signal.SIGTERM])
#: The worker writes the number first, so it is known even if the payload is beyond us.
_TASK = re.compile(rb'\s*\{\s*"task"\s*:\s*\{\s*"request"\s*:\s*(\d+)')


def serve(handler: Union[Handler, Mapping[str, Handler]]) -> None:
    """Runs a handler, or that of the agent that this child is started for, until the worker says that it is enough.

    It may be async. With several slots it runs several times at once, in threads or in one loop. Call it once, from the
    main thread, when everything else is set up: the worker gives a child that is not ready no tasks.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write("this program is started by a Tidemill worker, and waits for its lines\n")
    source, sink = take_over()
    lines = Lines(source)
    read: List[bytes] = []
    while not read:
        more = lines.read()
        if more is None:
            return
        read = more
    agent, slots = _hello(read.pop(0))
    chosen = handler if callable(handler) else handler.get(agent)
    if chosen is None:
        _fail(f"there is no handler for the agent {agent}")
    _Child(lines, read, Sink(sink), chosen, slots).serve()


def _hello(line: bytes) -> tuple[str, int]:
    try:
        hello = json.loads(line)["hello"]
        protocol, agent, slots = hello["protocol"], str(hello["agent"]), int(hello["slots"])
    except (ValueError, TypeError, KeyError):
        _fail(f"the first line is no hello of a worker: {line[:120]!r}")
    if protocol != PROTOCOL:
        _fail(f"the worker speaks protocol {protocol}, and this package {PROTOCOL}; use the package of its version")
    return agent, max(1, slots)


class _Child:
    """The tasks in hand, and the thread that listens."""

    def __init__(self, lines: Lines, read: List[bytes], sink: Sink, handler: Handler, slots: int) -> None:
        self._lines, self._read, self._sink = lines, read, sink
        self._crew: Union[Threads, Loop]
        self._crew = Loop(handler, self._answer) if is_async(handler) else Threads(handler, slots, self._answer)
        self._lock = threading.Lock()
        self._flights: Dict[int, Flight] = {}
        #: No more tasks will come; each that ends is told to the listener.
        self._ending = False
        #: When patience with the tasks in hand ends, if it does.
        self._until: Optional[float] = None
        self._called_off = False
        self._over = threading.Event()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def serve(self) -> None:
        listener = threading.Thread(target=self._listen, name="tidemill", daemon=True)
        # The number of the signal is written to the descriptor at once, whatever the main thread does. Its handler, in
        # Python, may not run as long as that thread waits for work.
        descriptor = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        handler = signal.signal(signal.SIGTERM, lambda *_: self._poke(_TERM))
        _signals_of_forks_are_their_own()
        try:
            self._crew.work(listener.start)
        finally:
            self._over.set()
            signal.signal(signal.SIGTERM, handler)
            signal.set_wakeup_fd(descriptor)

    def _poke(self, what: bytes) -> None:
        """Wakes the listener. A signal may interrupt any code, so this takes no lock."""
        try:
            os.write(self._wake, what)
        except BlockingIOError:
            pass  # it has enough to wake up for

    def _listen(self) -> None:
        try:
            self._sink.write(b'{"ready":true}\n')
            self._hear(self._read)
            self._follow()
            self._crew.finish()
        except BaseException:
            traceback.print_exc()
            _end(1)
        # What a loop leaves behind may keep it from closing.
        if not self._over.wait(_END_WITHIN):
            _end(0)

    def _follow(self) -> None:
        with selectors.PollSelector() as selector:
            selector.register(self._lines.source, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._is_over():
                patience = None if self._until is None else max(0.0, self._until - time.monotonic())
                for key, _ in selector.select(patience):
                    if key.fd == self._woken:
                        if _TERM in os.read(self._woken, 4096):
                            self._call_all_off()
                        continue
                    lines = self._lines.read()
                    if lines is None:
                        selector.unregister(key.fd)
                        self._until = self._until or time.monotonic() + _END_WITHIN
                        self._end_is_near()
                    else:
                        self._hear(lines)
                if self._until is not None and time.monotonic() >= self._until:
                    self._run_out_of_patience()

    def _is_over(self) -> bool:
        with self._lock:
            return self._ending and not self._flights

    def _end_is_near(self) -> None:
        with self._lock:
            self._ending = True

    def _run_out_of_patience(self) -> None:
        if self._called_off:
            sys.stderr.write(f"{len(self._flights)} tasks did not stop in time\n")
            _end(1)
        self._call_all_off()

    def _call_all_off(self) -> None:
        if self._called_off:
            return
        self._called_off = True
        self._until = time.monotonic() + _STOP_WITHIN
        self._end_is_near()
        with self._lock:
            flights = list(self._flights.values())
        for flight in flights:
            flight.task._stopping = True
            self._cancel(flight)

    def _cancel(self, flight: Flight) -> None:
        flight.task.cancelled.set()
        self._crew.cancel(flight)

    def _hear(self, lines: List[bytes]) -> None:
        for line in lines:
            try:
                said = json.loads(line)
            except (ValueError, RecursionError) as error:
                self._cannot_read(line, error)
                continue
            if not isinstance(said, dict):
                _fail(f"a line of the worker is no object: {line[:120]!r}")
            if "task" in said:
                self._take(said["task"], line)
            elif "cancel" in said:
                with self._lock:
                    flight = self._flights.get(said["cancel"])
                if flight is not None:
                    self._cancel(flight)
            # Anything else is of a later version of the protocol.

    def _take(self, fields: Any, line: bytes) -> None:
        try:
            request = int(fields["request"])
            task = Task(fields, lambda word: self._sink.write(_wire.line(request, word)))
        except (KeyError, TypeError, ValueError) as error:
            _fail(f"a task of the worker is not of the protocol ({error!r}): {line[:120]!r}")
        flight = Flight(request, task)
        if self._called_off:
            # It came with the signal: hand it back.
            task._stopping = True
            task.cancelled.set()
        with self._lock:
            self._flights[request] = flight
        self._crew.start(flight)

    def _cannot_read(self, line: bytes, error: Exception) -> None:
        """JSON may be too deep for Python, or a number too long. That is the payload's fault alone."""
        start = _TASK.match(line)
        if start is None or isinstance(error, json.JSONDecodeError):
            _fail(f"a line of the worker is not JSON ({error}): {line[:120]!r}")
        word = _wire.failure("dead", f"Python cannot read the payload: {type(error).__name__}: {error}")
        self._sink.write(_wire.line(int(start.group(1)), word))

    def _answer(self, flight: Flight, word: _wire.Word) -> None:
        self._sink.write(_wire.line(flight.request, word))
        with self._lock:
            del self._flights[flight.request]
            ending = self._ending
        if ending:
            self._poke(b"\0")


def _signals_of_forks_are_their_own() -> None:
    """What is sent to a process that a handler has forked, as `multiprocessing` does, is to end it, and not us: it has
    our descriptor and our handler at first. The signal is held back until it has neither."""
    masks = threading.local()

    def before() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def in_child() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def _fail(why: str) -> NoReturn:
    sys.stderr.write(f"tidemill: {why}\n")
    _end(2)


def _end(code: int) -> NoReturn:
    """Ends at once: from a thread that is not the main one, there is no other way."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)
