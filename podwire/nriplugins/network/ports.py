"""Interfaces and limits that the network plugin is handed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds, but for `pods_at_once`."""

    pods_at_once: int = 4
    """Pods to which routes and mesh are applied concurrently."""
    retry: float = 2.0
    """Until a failed change of the kernel is tried again."""
    audit: float = 30.0
    """Until the whole state of the kernel is compared, because others may have changed it."""
    synchronize: float = 1.0
    """Synchronize waits so long for the first pass; a runtime disconnects a plugin that answers too late."""
    lists: float = 1.5
    """A new pod waits so long for the informers' first lists; runtimes wait 2 s for a hook by default."""
    read: float = 0.3
    """A hook waits so long for an answer of the API server."""
    unserved: float = 1.0
    """Until a kind is listed again that has a definition and is not served yet."""
    status_debounce: float = 0.2
    """Between two rounds of status writes: changes in between are written once."""
    status_retry: float = 5.0
    """Until a failed status write is tried again."""


DEFAULT_LIMITS = Limits()

Now = Callable[[], float]
"""Monotonic seconds."""
