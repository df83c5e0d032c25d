"""The admission chain, and the operation that each plugin sees."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from podwire.apiserver.identity.authentication import User
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.status import ApiError, access_denied, qualified

Step = Callable[[], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Operation:
    """One write in progress. Plugins may change `obj` while they admit it.

    What a plugin takes elsewhere (an address, a share of a quota) is taken by a step in `reservations`: these run once
    the object is valid and about to be stored, so that a refused write costs no revision. A reservation that succeeds
    adds to `undos` what gives it back; these run, the last one first, when the write certainly did not happen.
    """

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
    namespace_object: Object | None = None
    """The namespace of the object, once a plugin has read it; nobody may change it."""
    reservations: list[Step] = field(default_factory=list)
    undos: list[Step] = field(default_factory=list)

    def is_for(self, group: str, resource: str) -> bool:
        return self.resource.name == resource and self.resource.group == group

    @property
    def name(self) -> str:
        name: str = self.url_name or self.obj["metadata"].get("name", "")
        return name

    async def reserve(self) -> None:
        for step in self.reservations:
            await step()

    async def undo(self) -> None:
        while self.undos:
            await self.undos.pop()()

    def forbidden(self, why: str) -> ApiError:
        """Returns the refusal of a plugin: `pods "web" is forbidden: …`."""
        resource, name = self.resource, self.name
        message = f'{qualified(resource.name, resource.group)} "{name}" is forbidden: {why}'
        return access_denied(message, resource=resource.name, name=name, group=resource.group)


class AdmissionPlugin:
    """Base of all plugins; a plugin implements one of the two methods or both, and refuses by raising an ApiError."""

    __slots__ = ()

    async def admit(self, operation: Operation) -> None:
        """Completes or changes the object, before it is validated."""

    async def validate(self, operation: Operation) -> None:
        """Checks the object when it is complete and valid, and no longer changes."""


class Admission:
    """All plugins in order: those that admit run before validation, those that validate after it."""

    def __init__(self, plugins: Sequence[AdmissionPlugin]) -> None:
        self._admitting = [plugin.admit for plugin in plugins if type(plugin).admit is not AdmissionPlugin.admit]
        self._validating = [
            plugin.validate for plugin in plugins if type(plugin).validate is not AdmissionPlugin.validate
        ]

    async def admit(self, operation: Operation) -> None:
        for admit in self._admitting:
            await admit(operation)

    async def validate(self, operation: Operation) -> None:
        for validate in self._validating:
            await validate(operation)
