"""What a handler may raise. Any other exception is a retry with its type and message."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Optional, Union

_AFTER_MS_MAX = 7 * 86_400_000


class Failure(Exception):
    """What the three ways to fail have in common."""

    def __init__(self, error: object, after: Union[float, timedelta, None] = None) -> None:
        self.error: str = describe(error) if isinstance(error, BaseException) else str(error)
        self.after_ms: Optional[int] = None if after is None else _milliseconds(after)
        super().__init__(self.error)


class Retry(Failure):
    """It failed; it counts as an attempt. Again after so many seconds, or as the task's retry policy says."""


class Throttled(Failure):
    """Whoever it needs says "not now". Does not count. Again after so many seconds; one, if it is not said."""


class Dead(Failure):
    """It failed, and always will."""

    def __init__(self, error: object) -> None:
        super().__init__(error)


class Cancelled(Exception):
    """The run is called off: `Task.check` raises it."""


def describe(error: BaseException) -> str:
    """`Type: message`."""
    name, message = type(error).__name__, str(error)
    return f"{name}: {message}" if message else name


def _milliseconds(after: Union[float, timedelta]) -> int:
    seconds = after.total_seconds() if isinstance(after, timedelta) else float(after)
    if math.isnan(seconds):
        raise ValueError("after is not a number")
    return math.ceil(min(max(seconds * 1000, 0), _AFTER_MS_MAX))
