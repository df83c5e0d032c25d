"""scale: replicas of whatever kind has them, seen as an autoscaling/v1 Scale."""

from typing import Any

from podwire.apiserver import bodies, patching, stored
from podwire.apiserver.call import Call, write_options
from podwire.apiserver.engine import Engine
from podwire.apiserver.registry import Resource
from podwire.apiserver.render import answer
from podwire.apiserver.stored import Object
from podwire.apiserver.updates import Write
from podwire.apiserver.verbs import body_of
from podwire.objects.selectors import from_labels, from_object
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Answer
from podwire.protocols.k8sapi.status import invalid, invalid_object, not_found

SCALE = Kind(group="autoscaling", version="v1", resource="scales", kind="Scale")


def scale_of(obj: Object) -> Object:
    """The Scale of an object."""
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": obj.get("status", {}).get("replicas", 0)}
    if selector := _selector(obj):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": obj.get("spec", {}).get("replicas", 0)},
        "status": status,
    }


def _selector(obj: Object) -> str:
    selector = obj.get("spec", {}).get("selector")
    if not isinstance(selector, dict) or not selector:
        return ""
    plain = obj["kind"] == "ReplicationController"
    return str(from_labels(selector) if plain else from_object(selector))


async def get(engine: Engine, call: Call) -> Answer:
    obj = await engine.find(call.resource, call.namespace, call.name)
    if obj is None:
        raise not_found(call.resource.name, call.name, group=call.resource.group)
    return answer(call.request, stored.encode(scale_of(obj)))


async def update(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "UpdateOptions")
    wanted = bodies.shaped(await body_of(call), _as_scale(engine), options.field_validation)
    return await _write(engine, call, lambda _scale: wanted, dry_run=options.dry_run)


async def patch(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "PatchOptions")
    data = await bodies.read(call.request)
    media = bodies.media_type(call.request)
    _, change = patching.change(data, media, _as_scale(engine), options.field_validation)
    return await _write(engine, call, change, dry_run=options.dry_run)


async def _write(engine: Engine, call: Call, change: Any, *, dry_run: bool) -> Answer:
    def scaled(old: Object) -> Object:
        scale = change(scale_of(old))
        replicas = scale.get("spec", {}).get("replicas", 0)
        if replicas < 0:
            error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
            raise invalid_object("Scale", call.name, [error], group="autoscaling")
        metadata = {**old["metadata"]}
        if version := scale["metadata"].get("resourceVersion"):
            metadata["resourceVersion"] = version
        return {**old, "metadata": metadata, "spec": {**old.get("spec", {}), "replicas": replicas}}

    write = Write(
        resource=call.resource,
        namespace=call.namespace,
        name=call.name,
        change=scaled,
        user=call.user,
        dry_run=dry_run,
    )
    item = await engine.updater.update(write)
    return answer(call.request, stored.encode(scale_of(call.resource.unpack(item))))


def _as_scale(engine: Engine) -> Resource:
    """A resource that is never stored: Scale is a view."""
    return Resource(
        kind=SCALE,
        shape=engine.shape("autoscaling/v1", "Scale"),
        prefix="",
        default=lambda _obj: None,
        validate=lambda _obj: [],
        validate_update=lambda _new, _old, _subresource: [],
        columns=list,
        cells=lambda _obj, _now: [],
    )
