"""Handlers for Tidemill's process agents.

    from tidemill import Task, serve

    def words(task: Task) -> object:
        return {"words": len(task.payload["text"].split())}

    serve(words)

The worker starts this program and keeps it; standard input and output belong to the two of them.
"""

from ._run import Handler
from ._serve import serve
from .errors import Cancelled, Dead, Retry, Throttled
from .task import Task

__all__ = ["Cancelled", "Dead", "Handler", "Retry", "Task", "Throttled", "serve"]
