"""Classifies requests by the FlowSchemas in the store, and follows these and the priority levels as they change."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.apiserver.engine import Engine
from podwire.apiserver.flowcontrol.levels import Level, LevelSpec, Queuing, Seats
from podwire.apiserver.flowcontrol.matching import FlowSchema, read_flow_schema
from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.identity.users import SYSTEM, User
from podwire.apiserver.read.informer import follow
from podwire.apiserver.write.updates import Write
from podwire.kinds.builtin.flowcontrol import defaults
from podwire.kinds.builtin.flowcontrol.strategy import dangling
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.storage import Change, Item, StorageError

_log = logging.getLogger("podwire.apiserver.flowcontrol")

MOST_REMEMBERED = 10_000
"""Kinds of requests whose classification is cached."""


@dataclass(slots=True)
class Flow:
    """The classification of a request."""

    level: Level
    flow: str
    headers: tuple[tuple[str, str], ...]


class FlowControl:
    """Classifies requests and hands out seats. Before the first `configure` it has the mandatory objects only."""

    def __init__(self, seats: Seats) -> None:
        self.seats = seats
        self._schemas: Sequence[FlowSchema] = ()
        self._cache: dict[tuple[Any, ...], Flow] = {}
        self.configure((), ())

    def configure(self, levels: Sequence[Object], schemas: Sequence[Object]) -> None:
        """Takes over the objects of the store; the mandatory ones are added where they are missing."""
        present = {level["metadata"]["name"] for level in levels}
        missing = (obj for obj in defaults.priority_levels() if obj["metadata"]["name"] in defaults.MANDATORY - present)
        self.seats.configure([_level_spec(level) for level in (*levels, *missing)])
        present = {schema["metadata"]["name"] for schema in schemas}
        missing = (obj for obj in defaults.flow_schemas() if obj["metadata"]["name"] in defaults.MANDATORY - present)
        found = [read_flow_schema(schema) for schema in (*schemas, *missing)]
        self._schemas = sorted(found, key=lambda schema: (schema.precedence, schema.name))
        self._cache.clear()

    def classify(self, user: User, attributes: Attributes) -> Flow:
        """Returns the flow of a request; the name of the object does not matter."""
        key = (user.name, user.groups, attributes.key)
        flow = self._cache.get(key)
        if flow is None:
            if len(self._cache) >= MOST_REMEMBERED:
                self._cache.clear()
            flow = self._cache[key] = self._classified(user, attributes)
        return flow

    def _classified(self, user: User, attributes: Attributes) -> Flow:
        """The last resort is for users without groups, which no authenticator makes."""
        for schema in self._schemas:
            level = self.seats.level(schema.level)
            if level is not None and schema.matches(user, attributes):
                return _flow(level, schema, schema.flow(user, attributes))
        level = self.seats.level(defaults.CATCH_ALL)
        if level is None:
            raise LookupError("the mandatory priority level catch-all does not exist")
        schema = next(schema for schema in self._schemas if schema.name == defaults.CATCH_ALL)
        return _flow(level, schema, user.name)


def _flow(level: Level, schema: FlowSchema, distinguisher: str) -> Flow:
    headers = (
        ("X-Kubernetes-PF-FlowSchema-UID", schema.uid),
        ("X-Kubernetes-PF-PriorityLevel-UID", level.spec.uid),
    )
    return Flow(level, f"{schema.name}\0{distinguisher}", headers)


def _level_spec(obj: Mapping[str, Any]) -> LevelSpec:
    spec, metadata = obj["spec"], obj["metadata"]
    name, uid = metadata["name"], metadata.get("uid", "")
    if spec["type"] == "Exempt":
        return LevelSpec(name=name, uid=uid, exempt=True)
    limited = spec["limited"]
    response = limited["limitResponse"]
    queuing = None
    if response["type"] == "Queue":
        given = response["queuing"]
        queuing = Queuing(queues=given["queues"], hand=given["handSize"], length=given["queueLengthLimit"])
    return LevelSpec(
        name=name,
        uid=uid,
        shares=limited["nominalConcurrencyShares"],
        lendable_percent=limited.get("lendablePercent") or 0,
        borrowing_percent=limited.get("borrowingLimitPercent"),
        queuing=queuing,
    )


def _unpack(resource: Resource, item: Item) -> Object:
    """Returns an object to keep: without managedFields, which are most of it."""
    obj = resource.unpack(item)
    obj["metadata"].pop("managedFields", None)
    return obj


class FlowInformer:
    """Creates the objects of a new cluster, and keeps `FlowControl` like the store."""

    def __init__(self, engine: Engine, control: FlowControl) -> None:
        self._engine = engine
        self._control = control
        self._levels = engine.registry.builtin(defaults.GROUP, "prioritylevelconfigurations")
        self._schemas = engine.registry.builtin(defaults.GROUP, "flowschemas")
        self._objects: dict[str, dict[str, Object]] = {self._levels.prefix: {}, self._schemas.prefix: {}}

    async def load(self) -> None:
        """Loads everything once, before the server answers."""
        for resource in (self._levels, self._schemas):
            page = await self._engine.store.list(resource.prefix)
            self._objects[resource.prefix] = {item.key: _unpack(resource, item) for item in page.items}
        self._configure()

    async def run(self) -> None:
        """Follows changes until cancelled."""
        async with asyncio.TaskGroup() as parts:
            for resource in (self._levels, self._schemas):
                parts.create_task(self._follow(resource))

    async def _follow(self, resource: Resource) -> None:
        objects = self._objects[resource.prefix]

        async def on_list(items: list[Item]) -> None:
            objects.clear()
            objects.update((item.key, _unpack(resource, item)) for item in items)
            await self._changed()

        async def on_change(change: Change) -> None:
            if change.item is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = _unpack(resource, change.item)
            await self._changed()

        await follow(self._engine.store, resource.prefix, on_list, on_change)

    async def _changed(self) -> None:
        self._configure()
        for schema in [*self._objects[self._schemas.prefix].values()]:
            await self._report_dangling(schema)

    def _configure(self) -> None:
        levels, schemas = ([*self._objects[resource.prefix].values()] for resource in (self._levels, self._schemas))
        try:
            self._control.configure(levels, schemas)
        except (KeyError, TypeError, ValueError) as error:  # written before it was validated, or past the API
            _log.error("cannot use flow control objects", extra={"error": repr(error)})

    async def _report_dangling(self, schema: Object) -> None:
        """Says in the status of a FlowSchema whether its priority level exists."""
        name, level = schema["metadata"]["name"], schema["spec"]["priorityLevelConfiguration"]["name"]
        known = {obj["metadata"]["name"] for obj in self._objects[self._levels.prefix].values()}
        reported = dangling(level, exists=level in known | defaults.MANDATORY)
        conditions = (schema.get("status") or {}).get("conditions") or []
        if any(all(met.get(key) == value for key, value in reported.items()) for met in conditions):
            return
        condition = {**reported, "lastTransitionTime": rfc3339(self._engine.clock.wall())}

        def change(old: Object) -> Object:
            others = [met for met in (old.get("status") or {}).get("conditions") or [] if met.get("type") != "Dangling"]
            return {**old, "status": {**(old.get("status") or {}), "conditions": [*others, condition]}}

        write = Write(
            resource=self._schemas,
            namespace="",
            name=name,
            change=change,
            user=SYSTEM,
            subresource="status",
            run_policies=False,
        )
        try:
            await self._engine.updater.update(write)
        except (ApiError, StorageError) as error:  # gone meanwhile, or the store is full: the next change reports it
            _log.info("cannot report dangling flow schema", extra={"schema": name, "error": str(error)})
