"""Interfaces that the network plugin is handed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Passing(Protocol):
    """A span that has begun."""

    def answered(self, response: object, outcome: str = "OK") -> None: ...


class Trace(Protocol):
    """Traces what the plugin does for a pod; each span ends with its block."""

    def reads(self, uid: str, path: str) -> AbstractContextManager[Passing]:
        """A request to the API server."""
        ...

    def configures(self, uid: str, what: str) -> AbstractContextManager[Passing]:
        """An action of the plugin: a read from the cache, applying routes, policies, mesh."""
        ...


Now = Callable[[], float]
"""Monotonic seconds."""
