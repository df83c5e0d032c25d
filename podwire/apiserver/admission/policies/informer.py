"""Informer of policies and bindings: each takes effect when it is stored and stops when it is deleted."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from podwire.apiserver.admission.policies.plugin import GROUP, Policies, bound
from podwire.apiserver.admission.policies.type_checking import checked
from podwire.apiserver.engine import Engine
from podwire.apiserver.identity.users import SYSTEM
from podwire.apiserver.read.informer import follow
from podwire.apiserver.request import offload
from podwire.apiserver.write.field_managers import SERVER, FieldManager
from podwire.apiserver.write.updates import Write
from podwire.kinds.policies.policy import Binding, Policy, binding_of, policy_of
from podwire.kinds.stored import Object, unpack
from podwire.protocols.cel import Unavailable
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.storage import Change, Item, StorageError

_log = logging.getLogger("podwire.apiserver.policies")


class PolicyInformer:
    """Follows policies and bindings, and writes each policy's status: the active generation and type-check warnings."""

    def __init__(self, engine: Engine, policies: Policies) -> None:
        self._engine = engine
        self.active = policies
        self._resource = engine.registry.builtin(GROUP, "validatingadmissionpolicies")
        bindings = engine.registry.builtin(GROUP, "validatingadmissionpolicybindings")
        self._policies = _CompiledObjects(self._resource.prefix, policy_of, self._create_or_update)
        self._bindings = _CompiledObjects(bindings.prefix, binding_of, self._create_or_update)
        self._observed: asyncio.Queue[_Stored] = asyncio.Queue()

    async def load(self) -> None:
        """Activates the stored policies; called once before the server answers."""
        for cache in (self._policies, self._bindings):
            await cache.seen(list((await self._engine.store.list(cache.prefix)).items))

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            for cache in (self._policies, self._bindings):
                parts.create_task(follow(self._engine.store, cache.prefix, cache.seen, cache.changed))
            parts.create_task(self._report())

    def _create_or_update(self, changed: "list[_Stored]") -> None:
        self.active.replace(bound(self._policies.known.values(), self._bindings.known.values()))
        for change in changed:
            if change.obj["kind"] == self._resource.kind.kind:
                self._observed.put_nowait(change)

    async def _report(self) -> None:
        """Writes statuses in a separate task, so that no policy waits for another one's status."""
        while True:
            policy, size = await self._observed.get()
            generation = policy["metadata"].get("generation", 0)
            if (policy.get("status") or {}).get("observedGeneration") != generation:
                warnings = await offload.for_size(size, partial(self._type_checking, policy))
                seen = {"observedGeneration": generation, "typeChecking": warnings}
                await self._write_status(policy["metadata"]["name"], seen)

    def _type_checking(self, policy: Object) -> Object:
        try:
            warnings = checked(policy, self._engine.registry)
        except Unavailable:
            return {}
        return {"expressionWarnings": warnings} if warnings else {}

    async def _write_status(self, name: str, seen: Object) -> None:
        def observed(obj: Object) -> Object:
            return {**obj, "status": {**(obj.get("status") or {}), **seen}}

        write = Write(
            resource=self._resource,
            namespace="",
            name=name,
            change=observed,
            user=SYSTEM,
            subresource="status",
            field_manager=FieldManager(SERVER.name, "status"),
        )
        try:
            await self._engine.updater.update(write)
        except (ApiError, StorageError) as error:
            _log.info("cannot write policy status", extra={"policy": name, "error": str(error)})


_Compiled = TypeVar("_Compiled", Policy, Binding)


class _Stored(NamedTuple):
    """A stored object, and its size in bytes."""

    obj: Object
    size: int


class _CompiledObjects(Generic[_Compiled]):
    """Stored objects of one kind, compiled."""

    def __init__(
        self, prefix: str, compile_: Callable[[Object], _Compiled], settle: Callable[[list[_Stored]], None]
    ) -> None:
        self.prefix = prefix
        self.known: dict[str, _Compiled] = {}
        self._compile: Callable[[Object], _Compiled] = compile_
        self._create_or_update = settle

    async def seen(self, items: list[Item]) -> None:
        found = {item.key: await offload.for_size(len(item.value), partial(self._compiled, item)) for item in items}
        self.known = {key: compiled for key, (_, compiled) in found.items() if compiled is not None}
        self._create_or_update([stored for stored, _ in found.values()])

    async def changed(self, change: Change) -> None:
        if (item := change.item) is None:
            self.known.pop(change.key, None)
            self._create_or_update([])
            return
        stored, compiled = await offload.for_size(len(item.value), partial(self._compiled, item))
        self.known.pop(change.key, None)
        if compiled is not None:
            self.known[change.key] = compiled
        self._create_or_update([stored])

    def _compiled(self, item: Item) -> tuple[_Stored, _Compiled | None]:
        obj = unpack(item)
        stored = _Stored(obj, len(item.value))
        try:
            return stored, self._compile(obj)
        except (LookupError, TypeError, ValueError):  # stored before it was validated: the others stay active
            _log.exception(
                "cannot compile a policy object", extra={"kind": obj["kind"], "object": obj["metadata"]["name"]}
            )
            return stored, None
