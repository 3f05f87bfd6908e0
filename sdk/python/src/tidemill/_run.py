"""One run of a handler, from the call to the word that answers it. Serving and testing share it."""

from __future__ import annotations

import asyncio
import inspect
import sys
import traceback
from typing import Any, Awaitable, Callable, cast

from . import _wire
from .errors import Cancelled, Dead, Failure, Throttled, describe
from .task import Task

#: Takes a task and returns its result: what JSON can say, or bytes. Async or not.
Handler = Callable[[Task], object]

# Soon, but not before whoever stopped us has had the time to.
_HANDED_BACK_MS = 100


def is_async(handler: Handler) -> bool:
    # An object with an async __call__ is one too.
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))


def run(handler: Handler, task: Task) -> _wire.Word:
    """Runs it on this thread."""
    try:
        result = handler(task)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise Dead("the handler returned something to await and is not declared `async def`")
        return _wire.done(result)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() inside of a handler must not leave a task without an answer
        return _failed(error, task)


async def run_async(handler: Handler, task: Task) -> _wire.Word:
    """Runs it in this loop."""
    try:
        return _wire.done(await cast("Awaitable[Any]", handler(task)))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        return _failed(error, task)


def called_off(task: Task) -> _wire.Word:
    """The answer of a run that stopped because it was asked to."""
    if task._stopping:
        return _wire.failure("throttled", "called off: its child ends", _HANDED_BACK_MS)
    return _wire.failure("retry", "called off")


def _failed(error: BaseException, task: Task) -> _wire.Word:
    if isinstance(error, Dead):
        return _wire.failure("dead", error.error)
    if isinstance(error, Throttled):
        return _wire.failure("throttled", error.error, error.after_ms)
    if isinstance(error, Failure):
        return _wire.failure("retry", error.error, error.after_ms)
    if task.cancelled.is_set() and isinstance(error, (Cancelled, asyncio.CancelledError)):
        return called_off(task)
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    # In one piece, since other threads write there too.
    sys.stderr.write(f"task {task.id}, attempt {task.attempt}:\n{trace}")
    sys.stderr.flush()
    # Whatever goes wrong while we end is no fault of the task's.
    return called_off(task) if task._stopping else _wire.failure("retry", describe(error))
