"""A handler as a real child, and its worker's end of the pipes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

SOURCE = Path(__file__).resolve().parent.parent / "src"
#: Nothing takes so long, even on a busy machine.
PATIENCE = 20.0


def line(what: object) -> bytes:
    return json.dumps(what, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Child:
    """Runs Python code that serves a handler. Each read waits for its line, and no longer than PATIENCE."""

    def __init__(self, code: str, slots: int = 1, agent: str = "words", hello: bool = True) -> None:
        self._errors = tempfile.TemporaryFile()
        environment = dict(os.environ, PYTHONPATH=str(SOURCE), PYTHONUNBUFFERED="1")
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        self._read = b""
        self._last = 0
        if hello:
            self.say({"hello": {"protocol": 1, "agent": agent, "slots": slots}})
            assert self.hear() == {"ready": True}

    def say(self, what: object) -> None:
        self.write(line(what))

    def write(self, data: bytes) -> None:
        self._input.write(data)
        self._input.flush()

    def task(self, payload: object = None, **fields: object) -> int:
        """Gives it a task and returns the number of its request."""
        self.write(self.task_line(payload, **fields))
        return self._last

    def task_line(self, payload: object = None, **fields: object) -> bytes:
        self._last += 1
        task: Dict[str, object] = {
            "request": self._last,
            "id": f"task-{self._last}",
            "agent": "words",
            "queue": "default",
            "priority": "normal",
            "tenant": "",
            "attempt": 1,
            "losses": 0,
            "fence": 40 + self._last,
            "key": f"task-{self._last}",
            "deadline_ms": 60_000,
        }
        if isinstance(payload, bytes):
            task["payload_base64"] = payload.decode()
        else:
            task["payload"] = payload
        task.update(fields)
        return line({"task": task})

    def ask(self, payload: object = None, **fields: object) -> Dict[str, Any]:
        """Gives it a task and returns what it says next, without the number."""
        request = self.task(payload, **fields)
        said = self.hear()
        assert said.pop("request") == request
        return said

    def line(self) -> bytes:
        """The next line, with its end; nothing once its output is closed."""
        until = time.monotonic() + PATIENCE
        while b"\n" not in self._read:
            ready, _, _ = select.select([self._output], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise AssertionError(f"no line within {PATIENCE} s; standard error: {self.errors()}")
            read = os.read(self._output.fileno(), 1 << 20)
            if not read:
                return b""
            self._read += read
        first, _, self._read = self._read.partition(b"\n")
        return first + b"\n"

    def hear(self) -> Dict[str, Any]:
        heard = self.line()
        assert heard, f"it ended; standard error: {self.errors()}"
        said = json.loads(heard)
        assert isinstance(said, dict)
        return said

    def hear_all(self, count: int) -> Dict[int, Dict[str, Any]]:
        """So many lines, by their requests."""
        said: List[Dict[str, Any]] = [self.hear() for _ in range(count)]
        return {one.pop("request"): one for one in said}

    def close(self) -> None:
        """The end of its input."""
        self._input.close()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def ended(self) -> int:
        """Its exit code, once it has ended and said nothing more."""
        rest = self.line()
        assert rest == b"", rest
        return self.process.wait(PATIENCE)

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.process.kill()
        self.process.wait()
        try:
            self._input.close()
        except BrokenPipeError:
            pass
        self._output.close()
        self._errors.close()
