"""The chain of judges, and what each of them is shown."""

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
    """One write on its way. Judges may change `obj`; what they took and must give back on failure goes in `taken`."""

    verb: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    resource: Resource
    namespace: str
    obj: Object
    old: Object | None
    user: User
    subresource: str = ""
    url_name: str = ""
    """The name that the URL has, where what is sent has none of its own."""
    dry_run: bool = False
    taken: list[Item] = field(default_factory=list)
    reserve: Callable[[], Awaitable[None]] | None = None
    """What a judge takes when the object is known to be good and about to be stored: a refusal costs no revision."""

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
        """The write did not happen: give back what `admit` took."""
        ...


class ValidatingPlugin(Protocol):
    """Sees an operation when nothing is left to be changed or found wrong; refuses by raising an ApiError."""

    async def validate(self, operation: Operation) -> None: ...


class Admission:
    """All judges, in order; the last one is asked separately."""

    def __init__(self, plugins: Sequence[AdmissionPlugin], validating: ValidatingPlugin | None = None) -> None:
        self._plugins = tuple(plugins)
        self._validating = validating

    async def validate(self, operation: Operation) -> None:
        """What is left to be said once the object is complete and valid."""
        if self._validating is not None:
            await self._validating.validate(operation)

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
