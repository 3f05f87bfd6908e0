"""The two pipes between worker and child."""

from __future__ import annotations

import os
import sys
import threading
from typing import List, Optional, Tuple


def take_over() -> Tuple[int, int]:
    """Takes standard input and output away from everything else in this process and in those that it starts: what is
    printed from now on goes to standard error, and there is nothing to read."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if sys.stdout is not None:
        # What was printed before goes to standard error too; from now on line by line, so that a log is in order.
        sys.stdout.flush()
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True)
    return source, sink


class Lines:
    """Lines of a pipe. They end with a line feed and nothing else, and may be long."""

    def __init__(self, source: int) -> None:
        self.source = source
        self._begun: List[bytes] = []

    def read(self) -> Optional[List[bytes]]:
        """The lines that one read has completed; None at the end. What has no end by then is no line."""
        read = os.read(self.source, 1 << 18)
        if not read:
            return None
        *whole, rest = read.split(b"\n")
        if whole:
            whole[0] = b"".join(self._begun) + whole[0]
            self._begun = []
        self._begun.append(rest)
        return whole


class Sink:
    """Writes whole lines, from any thread."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._lock = threading.Lock()

    def write(self, line: bytes) -> None:
        with self._lock:
            left = memoryview(line)
            try:
                while left:
                    left = left[os.write(self._sink, left) :]
            except BrokenPipeError:
                # The worker is gone, and the end of our input will say so; a handler has nothing to do with it.
                pass
