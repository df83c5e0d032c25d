"""scale: the replicas of any kind that has them, as an autoscaling/v1 Scale."""

from functools import partial
from typing import Any

import msgspec

from podwire.apiserver.engine import Engine
from podwire.apiserver.request import bodies
from podwire.apiserver.request.call import Call, WriteOptions, write_options
from podwire.apiserver.request.response import answer
from podwire.apiserver.request.verbs import body_of
from podwire.apiserver.write import patches, server_side_apply
from podwire.apiserver.write.updates import Write
from podwire.kinds import stored
from podwire.kinds.apply.builtin import builtin_types
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.kinds.strategy import Strategy
from podwire.objects.selectors import from_labels, from_object
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Answer
from podwire.protocols.k8sapi.status import ApiError, Reason, invalid, invalid_object, not_found

_VIEW = Strategy(group="autoscaling", kind="Scale")
SCALE = Kind(group="autoscaling", version="v1", resource="scales", kind="Scale")


def scale_of(obj: Object, resource: Resource) -> Object:
    """Returns the Scale of an object; 500 for a custom one without its replicas field, as upstream answers."""
    metadata, paths = obj["metadata"], resource.scale
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    wanted = _at(obj, paths.wanted)
    if wanted is None and resource.custom:
        raise ApiError(Reason.INTERNAL_ERROR, f'the spec replicas field ".{".".join(paths.wanted)}" does not exist')
    status: dict[str, Any] = {"replicas": _at(obj, paths.present) or 0}
    if selector := _selector(obj, resource):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": wanted or 0},
        "status": status,
    }


def scaled(obj: Object, path: tuple[str, ...], replicas: int) -> Object:
    """Returns the object with `replicas` at the path; parents are copied, not changed."""
    word, *rest = path
    if not rest:
        return {**obj, word: replicas}
    return {**obj, word: scaled(obj.get(word) or {}, tuple(rest), replicas)}


def _at(obj: Object, path: tuple[str, ...]) -> Any:
    found: Any = obj
    for word in path:
        found = found.get(word) if isinstance(found, dict) else None
    return found


def _selector(obj: Object, resource: Resource) -> str:
    if resource.custom:
        return str(_at(obj, resource.scale.selector) or "") if resource.scale.selector else ""
    selector = obj.get("spec", {}).get("selector")
    if not isinstance(selector, dict) or not selector:
        return ""
    plain = obj["kind"] == "ReplicationController"
    return str(from_labels(selector) if plain else from_object(selector))


async def get(engine: Engine, call: Call) -> Answer:
    obj = await engine.find(call.resource, call.namespace, call.name)
    if obj is None:
        raise not_found(call.resource.name, call.name, group=call.resource.group)
    return answer(call.request, stored.encode(scale_of(obj, call.resource)))


async def update(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "UpdateOptions")
    wanted = bodies.shaped(await body_of(call), _as_scale(engine), options.field_validation)
    return await _write(engine, call, lambda _scale: wanted, dry_run=options.dry_run)


async def patch(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "PatchOptions")
    media = bodies.media_type(call.request)
    if media in server_side_apply.MEDIA:
        return await _apply(engine, call, options)
    data = await bodies.read(call.request)
    _, change = patches.change(data, media, _as_scale(engine), options.field_validation)
    return await _write(engine, call, change, dry_run=options.dry_run)


async def _apply(engine: Engine, call: Call, options: WriteOptions) -> Answer:
    """Applies a Scale: the same as applying its replicas to the object itself."""
    server_side_apply.require_manager(call.request)
    resource = _as_scale(engine)
    data = await bodies.read(call.request)
    of_scale = msgspec.structs.replace(call, resource=resource)
    config = server_side_apply.configuration(data, of_scale, options.field_validation).value
    whole: Object = {"kind": call.resource.kind.kind, "apiVersion": call.resource.kind.api_version, "metadata": {}}
    if (replicas := (config.get("spec") or {}).get("replicas")) is not None:
        whole = scaled(whole, call.resource.scale.wanted, _counted(call, replicas))
    write = Write(
        resource=call.resource,
        namespace=call.namespace,
        name=call.name,
        change=server_side_apply.change(engine.tracker, call, whole),
        user=call.user,
        shown_as=("scale", partial(scale_of, resource=call.resource)),
        dry_run=options.dry_run,
        applied=True,
    )
    item = await engine.updater.update(write)
    return answer(call.request, stored.encode(scale_of(call.resource.unpack(item), call.resource)))


def _counted(call: Call, replicas: int) -> int:
    if replicas < 0:
        error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_object("Scale", call.name, [error], group="autoscaling")
    return replicas


async def _write(engine: Engine, call: Call, change: Any, *, dry_run: bool) -> Answer:
    def changed(old: Object) -> Object:
        scale = change(scale_of(old, call.resource))
        replicas = _counted(call, scale.get("spec", {}).get("replicas", 0))
        metadata = {**old["metadata"]}
        if version := scale["metadata"].get("resourceVersion"):
            metadata["resourceVersion"] = version
        return scaled({**old, "metadata": metadata}, call.resource.scale.wanted, replicas)

    write = Write(
        resource=call.resource,
        namespace=call.namespace,
        name=call.name,
        change=changed,
        user=call.user,
        shown_as=("scale", partial(scale_of, resource=call.resource)),
        dry_run=dry_run,
        field_manager=call.field_manager,
    )
    item = await engine.updater.update(write)
    return answer(call.request, stored.encode(scale_of(call.resource.unpack(item), call.resource)))


def _as_scale(engine: Engine) -> Resource:
    """Returns a resource that is never stored: Scale is a view."""
    return Resource(
        kind=SCALE,
        strategy=_VIEW,
        shape=engine.shape("autoscaling/v1", "Scale"),
        prefix="",
        default=lambda _obj: None,
        validate=lambda _obj: [],
        validate_update=lambda _new, _old, _subresource: [],
        columns=list,
        cells=lambda _obj, _now: [],
        typed=builtin_types().kind("autoscaling/v1", "Scale"),
    )
