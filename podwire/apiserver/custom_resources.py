"""Informer of CustomResourceDefinitions: compiles and serves them as they come and go."""

import logging
from dataclasses import replace
from functools import partial
from typing import Any

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.conversion import converter_of, converting
from podwire.apiserver.engine import Engine
from podwire.apiserver.identity.users import SYSTEM
from podwire.apiserver.read.informer import follow
from podwire.apiserver.request import offload
from podwire.apiserver.webhook_calls import WebhookCalls
from podwire.apiserver.write.field_managers import SERVER, FieldManager
from podwire.apiserver.write.updates import Write
from podwire.kinds.apply.builtin import OBJECT_META, builtin_types
from podwire.kinds.apply.custom import custom_type
from podwire.kinds.crds import (
    columns_of,
    compile_schema,
    established,
    kinds_of,
    scale_path,
    selectable_fields,
    storage_version,
)
from podwire.kinds.crds import definition as crd
from podwire.kinds.crds.served_kinds import deprecation, names_of, written_otherwise
from podwire.kinds.crds.structural import Structural
from podwire.kinds.resource import Resource, ScalePaths, storage_prefix
from podwire.kinds.schema import OpenApi
from podwire.kinds.shape import Shape
from podwire.kinds.stored import Object, encode, unpack
from podwire.kinds.strategy import CUSTOM, selectable
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, FieldError
from podwire.protocols.storage import Change, Item

_log = logging.getLogger("podwire.apiserver.custom_resources")

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""Protects a definition until its objects are deleted; a controller removes it."""

ANY_SCHEMA: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class DefinitionFinalizer(AdmissionPlugin):
    """Adds the finalizer that protects a definition's objects to every new definition."""

    verbs = frozenset({"CREATE"})
    resources = frozenset({("apiextensions.k8s.io", "customresourcedefinitions")})

    async def admit(self, operation: Operation) -> None:
        metadata = operation.obj["metadata"]
        metadata["finalizers"] = list(dict.fromkeys([*metadata.get("finalizers", []), CLEANUP]))


class CustomResources:
    """Updates the registry and the OpenAPI documents from the stored definitions."""

    def __init__(self, engine: Engine, openapi: OpenApi, calls: WebhookCalls) -> None:
        self._calls = calls
        self._engine = engine
        self._openapi = openapi
        self._definitions: dict[str, Object] = {}
        self._sizes: dict[str, int] = {}
        """Bytes of the stored definitions."""
        self._compiled: dict[_Version, list[tuple[Resource, Object]]] = {}
        """Compiled resources: a definition is not compiled again for its status."""
        self._resource = engine.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions")
        self._meta = engine.schemas.shape_of(OBJECT_META)

    async def load(self) -> None:
        """Serves the stored definitions; called once before the server answers."""
        page = await self._engine.store.list(self._resource.prefix)
        await self._on_list(list(page.items))

    async def run(self) -> None:
        """Follow the definitions until cancelled."""
        await follow(self._engine.store, self._resource.prefix, self._on_list, self._on_change)

    async def _on_list(self, items: list[Item]) -> None:
        self._definitions = {item.key: unpack(item) for item in items}
        self._sizes = {item.key: len(item.value) for item in items}
        await self._update_registry()
        for definition in list(self._definitions.values()):
            await self._establish(definition)

    async def _on_change(self, change: Change) -> None:
        if change.item is None:
            self._definitions.pop(change.key, None)
            self._sizes.pop(change.key, None)
        else:
            self._definitions[change.key] = unpack(change.item)
            self._sizes[change.key] = len(change.item.value)
        await self._update_registry()
        if change.item is not None:
            await self._establish(self._definitions[change.key])

    async def _establish(self, definition: Object) -> None:
        """Writes the status conditions NamesAccepted and Established."""
        name = definition["metadata"]["name"]
        others = [resource.kind for resource in self._engine.registry.resources if not _of(resource.kind, definition)]
        now = self._engine.clock.wall()

        def with_status(obj: Object) -> Object:
            return {**obj, "status": established(obj, now, others)}

        write = Write(
            resource=self._resource,
            namespace="",
            name=name,
            change=with_status,
            user=SYSTEM,
            subresource="status",
            field_manager=FieldManager(SERVER.name, "status"),
            run_policies=False,
        )
        try:
            await self._engine.updater.update(write)
        except ApiError as error:
            _log.info("cannot establish a definition", extra={"definition": name, "error": error.message})

    async def _update_registry(self) -> None:
        before, compiled = self._compiled, dict[_Version, list[tuple[Resource, Object]]]()
        for key, definition in self._definitions.items():
            if crd.condition(definition, "Established"):
                version = _version(definition)
                if version in before:
                    compiled[version] = before[version]
                else:
                    compiled[version] = await offload.for_size(self._sizes[key], partial(self._compile, definition))
        self._compiled = compiled
        served = [one for several in self._compiled.values() for one in several]
        self._engine.registry.replace_custom(resource for resource, _ in served)
        self._update_conversions()
        self._openapi.replace_custom((resource.kind, schema) for resource, schema in served)

    def _update_conversions(self) -> None:
        engines = self._engine.converting
        engines.clear()
        for definition in self._definitions.values():
            for resource, _ in self._compiled.get(_version(definition), ()):
                converter = converter_of(definition, resource, storage_version(definition), self._calls)
                if converter is not None:
                    kind = resource.kind
                    engine = converting(self._engine, converter, kind.api_version)
                    engines[kind.group, kind.version, kind.resource] = engine

    def _compile(self, definition: Object) -> list[tuple[Resource, Object]]:
        try:
            return _resources(definition, self._meta)
        except Exception:  # noqa: BLE001 - whatever is wrong with one definition, the others are served
            _log.exception("cannot serve a definition", extra={"definition": definition["metadata"]["name"]})
            return []


_Version = tuple[str, int, bool, bytes]


def _version(definition: Object) -> _Version:
    """Returns what a definition's compiled form depends on: uid, generation, whether it is being deleted, and the
    names in force."""
    metadata = definition["metadata"]
    names = encode(names_of(definition))
    return metadata["uid"], metadata.get("generation") or 1, "deletionTimestamp" in metadata, names


def _of(kind: Kind, definition: Object) -> bool:
    spec = definition["spec"]
    return (kind.group, kind.resource) == (spec["group"], spec["names"]["plural"])


def _resources(definition: Object, meta: Shape) -> list[tuple[Resource, Object]]:
    """The resources that a definition serves, each with its schema."""
    versions = {version["name"]: version for version in definition["spec"]["versions"]}
    stored = storage_version(definition)
    webhook = (definition["spec"].get("conversion") or {}).get("strategy") == "Webhook"
    rewritten = webhook or written_otherwise(definition)
    found = []
    for announced in kinds_of(definition):
        kind = _without_create(announced) if definition["metadata"].get("deletionTimestamp") else announced
        version = versions[kind.version]
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or ANY_SCHEMA
        structural = compile_schema(schema, meta)
        resource = replace(
            _custom(kind, version, structural, kind.version if webhook else stored),
            typed=custom_type(schema, builtin_types().definition(OBJECT_META)),
            as_read=structural.as_read if rewritten else None,
            warning=deprecation(definition, version),
        )
        fields = [{"fieldPath": name} for name in selectable_fields(version)]
        found.append((resource, {**schema, "x-kubernetes-selectable-fields": fields} if fields else schema))
    return found


def _without_create(kind: Kind) -> Kind:
    """Returns the kind without `create`: a terminating definition accepts no new objects, or its cleanup would never
    end."""
    return replace(kind, verbs=tuple(verb for verb in kind.verbs if verb != "create"))


def _custom(kind: Kind, version: dict[str, Any], structural: Structural, stored: str) -> Resource:
    columns = columns_of(version)

    def validate(obj: Object) -> list[FieldError]:
        return CUSTOM.errors_on_create(kind, obj) + structural.validate(obj)

    def validate_update(new: Object, old: Object, subresource: str) -> list[FieldError]:
        return CUSTOM.errors_on_update(new, old, subresource) + structural.validate(new, old=old)

    return Resource(
        kind=kind,
        shape=structural,
        strategy=CUSTOM,
        prefix=storage_prefix(kind, CUSTOM),
        stored_api_version="" if stored == kind.version else f"{kind.group}/{stored}",
        default=structural.apply_defaults,
        validate=validate,
        validate_update=validate_update,
        columns=partial(list, columns.definitions),
        cells=columns.cells,
        selectable=tuple(map(selectable, selectable_fields(version))),
        scale=ScalePaths(
            wanted=scale_path(version, "specReplicasPath"),
            present=scale_path(version, "statusReplicasPath"),
            selector=scale_path(version, "labelSelectorPath"),
        ),
    )
