"""ephemeralcontainers and resize: doors through which one part of a pod's spec can change."""

from collections.abc import Callable, Mapping

from podwire.apiserver import bodies, patching
from podwire.apiserver.call import Call, write_options
from podwire.apiserver.engine import Engine
from podwire.apiserver.stored import Object
from podwire.apiserver.updates import Change, Write
from podwire.apiserver.verbs import body_of, show
from podwire.protocols.k8sapi.server_side import Answer


def _ephemeral(old: Object, new: Object) -> Object:
    given = new["spec"].get("ephemeralContainers", [])
    return {**old, "metadata": new["metadata"], "spec": {**old["spec"], "ephemeralContainers": given}}


def _resized(old: Object, new: Object) -> Object:
    spec = dict(old["spec"])
    for part in ("containers", "initContainers"):
        wanted = {each["name"]: each for each in new["spec"].get(part, [])}
        if part in spec:
            spec[part] = [_with_resources(each, wanted.get(each["name"], each)) for each in spec[part]]
    return {**old, "metadata": new["metadata"], "spec": spec}


def _with_resources(container: Object, wanted: Object) -> Object:
    resized = dict(container)
    for part in ("resources", "resizePolicy"):
        if part in wanted:
            resized[part] = wanted[part]
    return resized


_PARTS: Mapping[str, Callable[[Object, Object], Object]] = {"ephemeralcontainers": _ephemeral, "resize": _resized}


async def update(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "UpdateOptions")
    body = await body_of(call)
    obj = bodies.shaped(body, call.resource, options.field_validation)
    item = await engine.updater.update(_write(call, lambda _old: obj, dry_run=options.dry_run, whole=True))
    return show(engine, call, item, body=body)


async def patch(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "PatchOptions")
    data = await bodies.read(call.request)
    body, change = patching.change(data, bodies.media_type(call.request), call.resource, options.field_validation)
    item = await engine.updater.update(_write(call, change, dry_run=options.dry_run))
    return show(engine, call, item, body=body)


def _write(call: Call, change: Change, *, dry_run: bool, whole: bool = False) -> Write:
    part = _PARTS[call.target.subresource]

    def only_the_part(old: Object) -> Object:
        new = change(old)
        return part(old, {**new, "metadata": dict(new["metadata"])})

    return Write(
        resource=call.resource,
        namespace=call.namespace,
        name=call.name,
        change=only_the_part,
        user=call.user,
        subresource=call.target.subresource,
        whole=whole,
        dry_run=dry_run,
    )
