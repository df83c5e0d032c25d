"""Local APIServices: one for each group and version that this server itself serves, as clients and stock tools expect.

Those of built-in groups are written when the server starts. Those of CustomResourceDefinitions follow the definitions.
The label says which is which, as upstream; an APIService without it belongs to somebody else and is left alone:

| label     | in the store, but no longer served | served, but missing | differs      |
|-----------|------------------------------------|---------------------|--------------|
| `onstart` | removed at a start                 | created at a start  | at a start   |
| `true`    | removed                            | created             | changed back |
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from podwire.apiserver.engine import Engine
from podwire.apiserver.identity.users import SYSTEM
from podwire.apiserver.read.informer import RETRY, follow
from podwire.apiserver.resource_metrics import kinds as metrics
from podwire.apiserver.write.deletion import DeleteOptions
from podwire.apiserver.write.updates import Write
from podwire.kinds.stored import Object, unpack
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.storage import Change, Item, StorageError

_log = logging.getLogger("podwire.apiserver.local_services")

T = TypeVar("T")

LABEL = "kube-aggregator.kubernetes.io/automanaged"
ON_START, ALWAYS = "onstart", "true"
CUSTOM_PRIORITIES = (1000, 100)
"""Of the group and of the version; custom resources come after all built-in ones."""
METRICS = f"{metrics.VERSION}.{metrics.GROUP}"
"""Served by this server until somebody installs another one, whose APIService then stays."""
PRIORITIES: Mapping[tuple[str, str], tuple[int, int]] = {
    ("", "v1"): (18000, 1),
    ("apps", "v1"): (17800, 15),
    ("events.k8s.io", "v1"): (17750, 15),
    ("authentication.k8s.io", "v1"): (17700, 15),
    ("authorization.k8s.io", "v1"): (17600, 15),
    ("autoscaling", "v1"): (17500, 15),
    ("autoscaling", "v2"): (17500, 30),
    ("batch", "v1"): (17400, 15),
    ("certificates.k8s.io", "v1"): (17300, 15),
    ("networking.k8s.io", "v1"): (17200, 15),
    ("policy", "v1"): (17100, 15),
    ("rbac.authorization.k8s.io", "v1"): (17000, 15),
    ("storage.k8s.io", "v1"): (16800, 15),
    ("apiextensions.k8s.io", "v1"): (16700, 15),
    ("admissionregistration.k8s.io", "v1"): (16700, 15),
    ("scheduling.k8s.io", "v1"): (16600, 15),
    ("coordination.k8s.io", "v1"): (16500, 15),
    ("node.k8s.io", "v1"): (16300, 15),
    ("discovery.k8s.io", "v1"): (16200, 15),
    ("resource.k8s.io", "v1"): (16200, 21),
    ("resource.k8s.io", "v1beta2"): (16200, 15),
    ("resource.k8s.io", "v1beta1"): (16200, 9),
    ("flowcontrol.apiserver.k8s.io", "v1"): (16100, 21),
    (metrics.GROUP, metrics.VERSION): (100, 100),
}
"""Of the group and of the version, by both; upstream's numbers. apiregistration.k8s.io itself has none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The APIServices to write, by their names."""

    create: dict[str, Object] = field(default_factory=dict)
    change: dict[str, Object] = field(default_factory=dict)
    """Their specs."""
    remove: list[str] = field(default_factory=list)


def builtin_services(kinds: Iterable[Kind]) -> dict[str, Object]:
    """Returns the APIServices of built-in groups by their names."""
    served = {(kind.group, kind.version) for kind in kinds}
    services = [_service(*words, *PRIORITIES[words], ON_START) for words in PRIORITIES if words in served]
    return {service["metadata"]["name"]: service for service in services}


class _Version(msgspec.Struct):
    name: str
    served: bool = False


class _Spec(msgspec.Struct):
    group: str
    versions: tuple[_Version, ...]


class Definition(msgspec.Struct):
    """The part of a CustomResourceDefinition that its APIServices follow: schemas of a megabyte are not decoded."""

    spec: _Spec


_definition = msgspec.json.Decoder(Definition)


def custom_services(definitions: Iterable[Definition]) -> dict[str, Object]:
    """Returns the APIServices of CustomResourceDefinitions by their names."""
    served = {
        (definition.spec.group, version.name)
        for definition in definitions
        for version in definition.spec.versions
        if version.served
    }
    services = [_service(*words, *CUSTOM_PRIORITIES, ALWAYS) for words in sorted(served)]
    return {service["metadata"]["name"]: service for service in services}


def _service(group: str, version: str, group_priority: int, version_priority: int, label: str) -> Object:
    spec = {"version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority}
    return {
        "metadata": {"name": f"{version}.{group}", "labels": {LABEL: label}},
        "spec": {"group": group, **spec} if group else spec,
    }


def plan(wanted: Mapping[str, Object], present: Mapping[str, Object], label: str) -> Plan:
    """Returns what makes the APIServices with a label those that are wanted."""
    decided = Plan()
    for name, service in wanted.items():
        if name not in present:
            decided.create[name] = service
        elif _label(present[name]) and present[name]["spec"] != service["spec"] and name != METRICS:
            decided.change[name] = service["spec"]
    decided.remove.extend(name for name, obj in present.items() if _label(obj) == label and name not in wanted)
    return decided


def _label(service: Object) -> str:
    label: str = (service["metadata"].get("labels") or {}).get(LABEL, "")
    return label


class LocalServices:
    """Writes the APIServices of what this server serves."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._resource = engine.registry.builtin("apiregistration.k8s.io", "apiservices")
        self._definition = engine.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions")
        self._definitions: dict[str, Definition] = {}
        self._services: dict[str, Object] = {}
        """Both by the key in the store."""
        self._listed: set[str] = set()
        """Prefixes that were listed."""
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Writes those of built-in groups, all at once: one commit."""
        page = await self._engine.store.list(self._resource.prefix)
        wanted = builtin_services(resource.kind for resource in self._engine.registry.resources)
        await self._write(plan(wanted, _by_name(map(unpack, page.items)), ON_START))

    async def run(self) -> None:
        """Follows the definitions until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._follow(self._resource.prefix, self._services, unpack))
            parts.create_task(
                self._follow(self._definition.prefix, self._definitions, lambda item: _definition.decode(item.value))
            )
            parts.create_task(self._reconcile())

    async def _follow(self, prefix: str, objects: dict[str, T], decode: Callable[[Item], T]) -> None:
        async def on_list(items: list[Item]) -> None:
            objects.clear()
            objects.update((item.key, decode(item)) for item in items)
            self._listed.add(prefix)
            self._changed.set()

        async def on_change(change: Change) -> None:
            objects.pop(change.key, None)
            if change.item is not None:
                objects[change.key] = decode(change.item)
            self._changed.set()

        await follow(self._engine.store, prefix, on_list, on_change)

    async def _reconcile(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if len(self._listed) < 2:
                continue
            wanted, present = custom_services(self._definitions.values()), _by_name(self._services.values())
            try:
                await self._write(plan(wanted, present, ALWAYS))
            except (ApiError, StorageError) as error:
                _log.warning("cannot register a local APIService", extra={"error": str(error)})
                await asyncio.sleep(RETRY)
                self._changed.set()

    async def _write(self, decided: Plan) -> None:
        await asyncio.gather(
            *(self._create(service) for service in decided.create.values()),
            *(self._change(name, spec) for name, spec in decided.change.items()),
            *(self._remove(name) for name in decided.remove),
        )

    async def _create(self, service: Object) -> None:
        kind = self._resource.kind
        whole = {"kind": kind.kind, "apiVersion": kind.api_version, **service}
        try:
            await self._engine.creator.create(self._resource, "", whole, SYSTEM)
        except ApiError as error:
            if error.reason is not Reason.ALREADY_EXISTS:  # another server of the same store was faster
                raise

    async def _change(self, name: str, spec: Object) -> None:
        write = Write(
            resource=self._resource,
            namespace="",
            name=name,
            change=lambda obj: {**obj, "spec": spec},
            user=SYSTEM,
            run_policies=False,
        )
        try:
            await self._engine.updater.update(write)
        except ApiError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise

    async def _remove(self, name: str) -> None:
        try:
            await self._engine.deleter.delete(self._resource, "", name, DeleteOptions(run_policies=False), SYSTEM)
        except ApiError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise


def _by_name(services: Iterable[Object]) -> dict[str, Object]:
    return {service["metadata"]["name"]: service for service in services}
