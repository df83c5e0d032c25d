"""The admission chain, and the operation that each plugin sees."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from podwire.apiserver.identity.authentication import User
from podwire.apiserver.request import context
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.status import ApiError, access_denied, qualified

_audit_log = logging.getLogger("podwire.apiserver.audit")

Step = Callable[[], Awaitable[None]]
GroupResource = tuple[str, str]


class Operation(msgspec.Struct, kw_only=True, eq=False):
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
    internal: bool = False
    """A write of the server itself, for which nobody outside is asked."""
    restrict: Callable[[Object], Object] | None = None
    """Restores what the subresource may not change, after a webhook or policy has changed the object."""
    round: int = 0
    """1 when mutating plugins are run a second time."""
    reinvoke: bool = False
    """A webhook or policy has changed the object, so that those before it may have to see it again."""
    reinvocations: dict[str, Any] | None = None
    """The notes of each plugin for its second round; see mutation.py."""
    namespace_object: Object | None = None
    """The namespace of the object, once a plugin has read it; nobody may change it."""
    reservations: list[Step] = []
    undos: list[Step] = []

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

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Adds annotations to the audit event, where an audit log is configured, and to the server's own log."""
        context.annotate(annotations)
        _audit_log.info(
            "admission audit annotations",
            extra={
                "annotations": dict(annotations),
                "operation": self.verb,
                "resource": qualified(self.resource.name, self.resource.group),
                "object": self.name,
                "namespace": self.namespace,
                "user": self.user.name,
            },
        )

    def forbidden(self, why: str) -> ApiError:
        """Returns the refusal of a plugin: `pods "web" is forbidden: …`."""
        resource, name = self.resource, self.name
        message = f'{qualified(resource.name, resource.group)} "{name}" is forbidden: {why}'
        return access_denied(message, resource=resource.name, name=name, group=resource.group)


WRITES = frozenset({"CREATE", "UPDATE"})
MOST_STEPS = 10_000
"""Kinds and verbs whose plugins are remembered."""


class AdmissionPlugin:
    """Base of all plugins; a plugin implements one of the two methods or both, and refuses by raising an ApiError.

    It is called for its verbs on its resources only; a write of another kind does not know that it exists.
    """

    __slots__ = ()

    verbs: ClassVar[frozenset[str]] = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
    resources: ClassVar[frozenset[GroupResource] | None] = None
    """None: those of every kind."""
    admits_parts: ClassVar[bool] = False
    """Whether bindings, evictions, token requests and connections are admitted, too, and not only validated."""

    async def admit(self, operation: Operation) -> None:
        """Completes or changes the object, before it is validated."""

    async def validate(self, operation: Operation) -> None:
        """Checks the object when it is complete and valid, and no longer changes."""


class Admission:
    """All plugins in order: those that admit run before validation, those that validate after it.

    `finishing` ones complete what the others have agreed on: they admit once, and last.
    """

    def __init__(self, plugins: Sequence[AdmissionPlugin], finishing: Sequence[AdmissionPlugin] = ()) -> None:
        self._plugins = tuple(plugins)
        self._finishing = tuple(finishing)
        self._steps: dict[tuple[str, str, str], _Steps] = {}

    async def admit(self, operation: Operation) -> None:
        steps = self._steps_of(operation)
        for admit in steps.admit:
            await admit(operation)
        if operation.reinvoke:
            operation.round = 1
            for admit in steps.admit:
                await admit(operation)
        for finish in steps.finish:
            await finish(operation)

    async def admit_part(self, operation: Operation) -> None:
        """Admits a request that is not stored as it is."""
        for plugin in self._plugins:
            if plugin.admits_parts:
                await plugin.admit(operation)

    async def validate(self, operation: Operation) -> None:
        for validate in self._steps_of(operation).validate:
            await validate(operation)

    def _steps_of(self, operation: Operation) -> "_Steps":
        resource = operation.resource
        key = (operation.verb, resource.group, resource.name)
        steps = self._steps.get(key)
        if steps is None:
            if len(self._steps) >= MOST_STEPS:
                self._steps.clear()
            called, finishing = (
                [
                    plugin
                    for plugin in plugins
                    if operation.verb in plugin.verbs and (plugin.resources is None or key[1:] in plugin.resources)
                ]
                for plugins in (self._plugins, self._finishing)
            )
            everyone = [*called, *finishing]
            steps = self._steps[key] = _Steps(
                [plugin.admit for plugin in called if type(plugin).admit is not AdmissionPlugin.admit],
                [plugin.admit for plugin in finishing if type(plugin).admit is not AdmissionPlugin.admit],
                [plugin.validate for plugin in everyone if type(plugin).validate is not AdmissionPlugin.validate],
            )
        return steps


@dataclass(frozen=True, slots=True)
class _Steps:
    """The plugins that are called for a verb on a resource."""

    admit: Sequence[Callable[[Operation], Awaitable[None]]]
    finish: Sequence[Callable[[Operation], Awaitable[None]]]
    validate: Sequence[Callable[[Operation], Awaitable[None]]]
