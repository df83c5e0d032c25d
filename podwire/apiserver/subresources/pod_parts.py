"""ephemeralcontainers and resize: subresources that change one part of a pod's spec."""

from collections.abc import Callable, Mapping

from podwire.apiserver.engine import Engine
from podwire.apiserver.request import bodies, offload
from podwire.apiserver.request.call import Call, write_options
from podwire.apiserver.request.verbs import body_of, show
from podwire.apiserver.write import patches, server_side_apply
from podwire.apiserver.write.field_managers import MANAGED_FIELDS
from podwire.apiserver.write.updates import Change, Write
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.server_side import Answer


def _ephemeral(old: Object, new: Object) -> Object:
    kept = {key: value for key, value in old["spec"].items() if key != "ephemeralContainers"}
    given = new["spec"].get("ephemeralContainers")
    return {**kept, "ephemeralContainers": given} if given else kept


def _resized(old: Object, new: Object) -> Object:
    spec = dict(old["spec"])
    for part in ("containers", "initContainers"):
        before, wanted = spec.get(part, []), new["spec"].get(part, [])
        if [container["name"] for container in wanted] != [container["name"] for container in before]:
            spec[part] = wanted  # validation refuses this
        elif before:
            spec[part] = [_with_resources(*pair) for pair in zip(before, wanted, strict=True)]
    return spec


def _with_resources(container: Object, wanted: Object) -> Object:
    resized = {key: value for key, value in container.items() if key not in ("resources", "resizePolicy")}
    return {**resized, **{part: wanted[part] for part in ("resources", "resizePolicy") if part in wanted}}


_PARTS: Mapping[str, Callable[[Object, Object], Object]] = {"ephemeralcontainers": _ephemeral, "resize": _resized}
"""Returns the new spec from the current and the requested pod."""


_TAKEN = ("name", "uid", "resourceVersion", MANAGED_FIELDS)
"""Metadata that is taken from the client."""


async def update(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "UpdateOptions")
    body = await body_of(call)
    obj = await offload.run(bodies.shaped, body, call.resource, options.field_validation)
    item = await engine.updater.update(_write(call, lambda _old: obj, dry_run=options.dry_run, whole=True))
    return show(engine, call, item, body=body)


async def patch(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "PatchOptions")
    media, validation = bodies.media_type(call.request), options.field_validation
    applied = media in server_side_apply.MEDIA
    if applied:
        server_side_apply.require_manager(call.request)
        body = await offload.run(server_side_apply.configuration, await bodies.read(call.request), call, validation)
        change = server_side_apply.change(engine.tracker, call, body.value)
    else:
        body, change = await offload.run(
            patches.change, await bodies.read(call.request), media, call.resource, validation
        )
    item = await engine.updater.update(_write(call, change, dry_run=options.dry_run, applied=applied))
    return show(engine, call, item, body=body)


def _write(call: Call, change: Change, *, dry_run: bool, whole: bool = False, applied: bool = False) -> Write:
    part = _PARTS[call.target.subresource]

    def only_the_part(old: Object) -> Object:
        new = change(old)
        precise = {key: new["metadata"][key] for key in _TAKEN if key in new["metadata"]}
        return {**old, "metadata": {**old["metadata"], **precise}, "spec": part(old, new)}

    return Write(
        resource=call.resource,
        namespace=call.namespace,
        name=call.name,
        change=only_the_part,
        user=call.user,
        subresource=call.target.subresource,
        whole=whole,
        dry_run=dry_run,
        field_manager=call.field_manager,
        applied=applied,
    )
