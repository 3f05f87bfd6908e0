"""Follow-ups, checked before they are said: what the worker cannot read would cost the child its life."""

from __future__ import annotations

import math
import re
from typing import Mapping, Optional, Tuple, Union

from . import _wire
from .errors import Dead

_COUNT_MAX = 256
_BYTES_MAX = 4 << 20
_PAYLOAD_BYTES_MAX = 1 << 20
_TEXT_BYTES_MAX = 255
_TEN_YEARS_MS = 315_576_000_000
_PRIORITIES = ("urgent", "high", "normal", "low")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Outbox:
    """What one run hands in."""

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0

    def add(
        self,
        agent: str,
        payload: object,
        texts: Mapping[str, Optional[str]],
        numbers: Mapping[str, Union[int, float, None]],
    ) -> bytes:
        """The value of `submit`."""
        said: dict[str, object] = {"agent": _name("agent", agent, _NAME)}
        for what, value in texts.items():
            if value is not None:
                said[what] = _text(what, value)
        for what, number in numbers.items():
            if number is not None:
                name, whole = _number(what, number)
                said[name] = whole
        how, data, size = _payload(payload)
        self._count += 1
        self._bytes += size
        if self._count > _COUNT_MAX or self._bytes > _BYTES_MAX:
            raise _invalid("a run has at most 256 of them, with 4 MiB of payloads")
        # The payload is JSON already.
        return _wire.encode(said)[:-1] + b',"%s":%s}' % (how, data)


def _payload(payload: object) -> Tuple[bytes, bytes, int]:
    if isinstance(payload, (bytes, bytearray, memoryview)):
        raw = bytes(payload)
        how, data, size = b"payload_base64", _wire.encode(_wire.base64_text(raw)), len(raw)
    else:
        try:
            data = _wire.encode(payload)
        except (TypeError, ValueError, RecursionError) as error:
            raise _invalid(f"its payload is not JSON: {error}") from error
        how, size = b"payload", len(data)
    if size > _PAYLOAD_BYTES_MAX:
        raise _invalid(f"its payload has {size} bytes; at most {_PAYLOAD_BYTES_MAX} are allowed")
    return how, data, size


def _text(what: str, value: str) -> str:
    if what == "id":
        return _name(what, value, _ID)
    if what == "queue":
        return _name(what, value, _NAME)
    if what == "priority":
        if value not in _PRIORITIES:
            raise _invalid(f"its priority is {value!r}, which is none of {', '.join(_PRIORITIES)}")
        return value
    least = 0 if what == "tenant" else 1
    try:
        size = len(value.encode()) if isinstance(value, str) else -1
    except UnicodeEncodeError:
        size = -1
    if not least <= size <= _TEXT_BYTES_MAX:
        raise _invalid(f"its {what} must be a text of {least} to {_TEXT_BYTES_MAX} bytes of UTF-8")
    return value


def _name(what: str, value: str, form: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise _invalid(f"its {what} {value!r} is not 1 to 64 characters of {form.pattern.split(']')[0][1:]}")
    return value


def _number(what: str, value: Union[int, float]) -> Tuple[str, int]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _invalid(f"its {what} is {value!r}, which is no number")
    if what == "max_attempts":
        if value != int(value) or not 1 <= value <= 65_535:
            raise _invalid(f"its max_attempts is {value!r}, which is not 1 to 65535")
        return what, int(value)
    ms = math.ceil(value * 1000)
    if not 0 <= ms <= _TEN_YEARS_MS:
        raise _invalid(f"its {what} is {value!r} s, which is not 0 to ten years")
    return f"{what}_ms", ms


def _invalid(why: str) -> Dead:
    return Dead(f"a follow-up is not valid: {why}")
