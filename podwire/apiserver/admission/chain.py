"""The admission chain, and the operation that each plugin sees."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from podwire.apiserver.identity.authentication import User
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.protocols.storage import Item


@dataclass(slots=True, kw_only=True)
class Operation:
    """One write in progress. Plugins may change `obj`; what they reserved and must release on failure goes into
    `taken`."""

    verb: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    resource: Resource
    namespace: str
    obj: Object
    old: Object | None
    user: User
    subresource: str = ""
    url_name: str = ""
    """The name in the URL, where the sent object has none of its own."""
    dry_run: bool = False
    taken: list[Item] = field(default_factory=list)
    reserve: Callable[[], Awaitable[None]] | None = None
    """Reserves what a plugin chose, once the object is valid and about to be stored: a refused write costs no
    revision."""

    def is_for(self, group: str, resource: str) -> bool:
        return self.resource.name == resource and self.resource.group == group

    @property
    def name(self) -> str:
        name: str = self.url_name or self.obj["metadata"].get("name", "")
        return name


class AdmissionPlugin(Protocol):
    """Admits an operation, changes its object, or raises an ApiError."""

    async def admit(self, operation: Operation) -> None: ...

    async def undo(self, operation: Operation) -> None:
        """The write did not happen: releases what `admit` reserved."""
        ...


class ValidatingPlugin(Protocol):
    """Runs after validation, when the object no longer changes; refuses by raising an ApiError."""

    async def validate(self, operation: Operation) -> None: ...


class Admission:
    """All plugins in order; validating ones run separately, after validation."""

    def __init__(self, plugins: Sequence[AdmissionPlugin], validating: Sequence[ValidatingPlugin] = ()) -> None:
        self._plugins = tuple(plugins)
        self._validating = tuple(validating)

    async def validate(self, operation: Operation) -> None:
        """Runs the validating plugins and policies on a complete and valid object."""
        for plugin in self._validating:
            await plugin.validate(operation)

    async def admit(self, operation: Operation) -> None:
        """Runs the mutating plugins in order; undoes all of them when one refuses."""
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self.undo, operation)
            for plugin in self._plugins:
                await plugin.admit(operation)
            undo.pop_all()

    async def undo(self, operation: Operation) -> None:
        if operation.taken:
            for plugin in reversed(self._plugins):
                await plugin.undo(operation)
