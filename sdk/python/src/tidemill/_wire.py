"""The lines to the worker. docs/process-agents.md of the repository describes them.

A line that the worker cannot read costs the child its life and every task in it an attempt. So whatever comes from a
handler is made harmless here: texts are cut and are valid UTF-8, results are JSON and not too large.
"""

from __future__ import annotations

import base64
import json
from typing import Iterator, Tuple, Union

#: A word about a run: its key, and its value as JSON.
Word = Tuple[str, bytes]

RESULT_BYTES_MAX = 1 << 20
PROGRESS_CHARS_MAX = 256
ERROR_CHARS_MAX = 1_000
# A part of a run's output in one line: with every character escaped it is still well below the longest line.
_OUTPUT_CHARS_MAX = 1 << 16


def encode(value: object) -> bytes:
    """JSON, in one line. Raises TypeError, ValueError or RecursionError."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair has no UTF-8, and stays an escape.
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def text(value: object, most: int) -> str:
    """A text that the worker can read: halves of surrogate pairs, as in names of files, are spelled out."""
    return str(value)[:most].encode("utf-8", "backslashreplace").decode()


def base64_text(data: Union[bytes, bytearray, memoryview]) -> str:
    return base64.b64encode(data).decode("ascii")


def line(request: int, word: Word) -> bytes:
    kind, value = word
    return b'{"request":%d,"%s":%s}\n' % (request, kind.encode(), value)


def output(value: object) -> Iterator[Word]:
    """A part of a run's output, in as many lines as it needs."""
    whole = str(value)
    for start in range(0, len(whole), _OUTPUT_CHARS_MAX):
        yield "output", encode(text(whole[start : start + _OUTPUT_CHARS_MAX], _OUTPUT_CHARS_MAX))


def spend(tokens: object, cost_usd: object) -> Word:
    """What was used. Raises ValueError for less than nothing, TypeError for what is no amount."""
    if isinstance(tokens, bool) or not isinstance(tokens, int):
        raise TypeError(f"tokens are a whole number, not {tokens!r}")
    if isinstance(cost_usd, bool) or not isinstance(cost_usd, (int, float, str)):
        raise TypeError(f"cost_usd is a number or a text, not {cost_usd!r}")
    if tokens < 0 or not 0 <= float(cost_usd) <= 1e9:
        raise ValueError("a run cannot use less than nothing, nor more than a billion dollars")
    return "spend", encode({"tokens": tokens, "cost_usd": cost_usd})


def failure(kind: str, error: object, after_ms: Union[int, None] = None) -> Word:
    said: dict[str, object] = {"error": text(error, ERROR_CHARS_MAX)}
    if after_ms is not None:
        said["after_ms"] = after_ms
    return kind, encode(said)


def done(result: object) -> Word:
    """A success, or why it cannot be one: what cannot be kept will not be smaller the next time."""
    if isinstance(result, (bytes, bytearray, memoryview)):
        data = bytes(result)
        word, size = ("done_base64", encode(base64_text(data))), len(data)
    else:
        try:
            data = encode(result)
        except (TypeError, ValueError, RecursionError) as error:
            return failure("dead", f"the result is not JSON: {error}")
        word, size = ("done", data), len(data)
    if size > RESULT_BYTES_MAX:
        return failure("dead", f"the result has {size} bytes; at most {RESULT_BYTES_MAX} are allowed")
    return word
