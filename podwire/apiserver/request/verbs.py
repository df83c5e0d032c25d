"""The eight verbs of every resource, from a call to its answer."""

from collections.abc import Awaitable, Callable, Mapping

from podwire.apiserver.engine import Engine
from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.read import lists, watches
from podwire.apiserver.request import bodies, offload
from podwire.apiserver.request.bodies import Body
from podwire.apiserver.request.call import Call, WriteOptions, boolean_option, integer_option, write_options
from podwire.apiserver.request.negotiation import Shown
from podwire.apiserver.request.response import Renderer, answer, list_answer
from podwire.apiserver.write import patches, server_side_apply
from podwire.apiserver.write.deletion import UNSAFE, Deleted, DeleteOptions, options_of
from podwire.apiserver.write.updates import Write, another_uid
from podwire.kinds import stored
from podwire.kinds.resource import Resource
from podwire.kinds.shape import Report, TypeMismatch
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.server_side import Answer, Response
from podwire.protocols.k8sapi.status import (
    ApiError,
    Reason,
    bad_request,
    conflict,
    forbidden,
    invalid_object,
    method_not_allowed,
    named,
)
from podwire.protocols.storage import Item

Verb = Callable[[Engine, Call], Awaitable[Answer]]

APPLY_ATTEMPTS = 5
"""Times that an apply finds its object gone and then there again before it gives up."""


def show(engine: Engine, call: Call, item: Item, *, status: int = 200, body: Body | None = None) -> Response:
    """One object as the client wants to see it."""
    if call.form.shown is Shown.OBJECT:  # as almost always
        shown = call.resource.serve(item)
    else:
        shown = Renderer(call.resource, call.form, call.request, engine.clock.wall()).one(item)
    return answer(call.request, shown, status=status, warnings=body.warnings if body else ())


async def get(engine: Engine, call: Call) -> Answer:
    return show(engine, call, await lists.get(engine.store, call, engine.limits))


async def list_(engine: Engine, call: Call) -> Answer:
    listing = await lists.list_(engine.store, call, engine.limits)
    renderer = Renderer(call.resource, call.form, call.request, engine.clock.wall())
    return await list_answer(call.request, renderer, listing.items, listing.meta, engine.protobuf_items)


async def watch(engine: Engine, call: Call) -> Answer:
    return await watches.watch(engine.store, call, engine.clock, engine.limits)


async def body_of(call: Call) -> Body:
    """The request's body, decoded but not yet held against a schema."""
    data = await bodies.read(call.request)
    return await offload.run(bodies.decode, data, bodies.media_type(call.request), custom=call.resource.custom)


async def create(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "CreateOptions")
    body = await body_of(call)
    obj = await offload.run(bodies.shaped, body, call.resource, options.field_validation)
    item = await engine.creator.create(
        call.resource, call.namespace, obj, call.user, dry_run=options.dry_run, field_manager=call.field_manager
    )
    return show(engine, call, item, status=201, body=body)


async def update(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "UpdateOptions")
    body = await body_of(call)
    obj = await offload.run(bodies.shaped, body, call.resource, options.field_validation)

    def replaced(_old: Object) -> Object:
        return {**obj, "metadata": dict(obj["metadata"])}

    write = Write(
        resource=call.resource,
        namespace=call.namespace,
        name=call.name,
        change=replaced,
        user=call.user,
        subresource=call.target.subresource,
        whole=True,
        dry_run=options.dry_run,
        field_manager=call.field_manager,
        copies=True,
    )
    try:
        return show(engine, call, await engine.updater.update(write), body=body)
    except ApiError as error:
        if error.reason is not Reason.NOT_FOUND or not _may_create(call):
            raise
    if uid := obj["metadata"].get("uid"):
        raise another_uid(call.resource, call.name, uid, "")
    obj["metadata"].pop("resourceVersion", None)
    item = await engine.creator.create(
        call.resource,
        call.namespace,
        obj,
        call.user,
        dry_run=options.dry_run,
        name=call.name,
        field_manager=call.field_manager,
    )
    return show(engine, call, item, status=201, body=body)


def _may_create(call: Call) -> bool:
    return not call.target.subresource and call.resource.strategy.allow_create_on_update


async def patch(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "PatchOptions")
    if bodies.media_type(call.request) in server_side_apply.MEDIA:
        return await _apply(engine, call, options)
    data = await bodies.read(call.request)
    body, change = await offload.run(
        patches.change, data, bodies.media_type(call.request), call.resource, options.field_validation
    )
    if "force" in call.request.query:
        error = forbidden("force", "may not be specified for non-apply patch")
        raise invalid_object("PatchOptions", "", [error], group="meta.k8s.io")
    write = Write(
        resource=call.resource,
        namespace=call.namespace,
        name=call.name,
        change=change,
        user=call.user,
        subresource=call.target.subresource,
        dry_run=options.dry_run,
        field_manager=call.field_manager,
        copies=call.target.subresource == "status" and not call.resource.custom,
    )
    return show(engine, call, await engine.updater.update(write), body=body)


async def _apply(engine: Engine, call: Call, options: WriteOptions) -> Answer:
    """Apply to the object that is there, else make it; again when it came or went in between."""
    server_side_apply.require_manager(call.request)
    data = await bodies.read(call.request)
    body = await offload.run(server_side_apply.configuration, data, call, options.field_validation)
    write = Write(
        resource=call.resource,
        namespace=call.namespace,
        name=call.name,
        change=server_side_apply.change(engine.tracker, call, body.value),
        user=call.user,
        subresource=call.target.subresource,
        dry_run=options.dry_run,
        applied=True,
    )
    for _ in range(APPLY_ATTEMPTS):
        try:
            return show(engine, call, await engine.updater.update(write), body=body)
        except ApiError as missing:
            if missing.reason is not Reason.NOT_FOUND or call.target.subresource:
                raise
        try:
            return await _create_by_apply(engine, call, options, body)
        except ApiError as present:
            if present.reason is not Reason.ALREADY_EXISTS:
                raise
    raise conflict(call.resource.name, call.name, "it comes and goes; please try again", group=call.resource.group)


async def _create_by_apply(engine: Engine, call: Call, options: WriteOptions, body: Body) -> Answer:
    resource = call.resource
    if "create" not in resource.kind.verbs:
        raise method_not_allowed()
    may = Attributes(
        verb="create",
        group=resource.group,
        version=resource.kind.version,
        resource=resource.name,
        namespace=call.namespace,
        name=call.name,
    )
    engine.identity.authorizer.require(call.user, may)
    obj = await offload.run(server_side_apply.first, engine.tracker, call, body.value)
    item = await engine.creator.create(
        resource, call.namespace, obj, call.user, dry_run=options.dry_run, name=call.name, field_manager=None
    )
    return show(engine, call, item, status=201, body=body)


async def delete(engine: Engine, call: Call) -> Answer:
    options = await delete_options(engine, call)
    deleted = await engine.deleter.delete(call.resource, call.namespace, call.name, options, call.user)
    if not deleted.gone or call.resource.strategy.returns_deleted:
        return show(engine, call, deleted.item)
    return answer(call.request, stored.encode(_success(call.resource, call.name, deleted)))


def _success(resource: Resource, name: str, deleted: Deleted) -> Object:
    details = {**named(resource.name, name, resource.group), "uid": deleted.uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


async def deletecollection(engine: Engine, call: Call) -> Answer:
    """Delete everything that the selectors pick; what vanishes meanwhile is fine."""
    options = await delete_options(engine, call)
    listing = await lists.list_(engine.store, call, engine.limits)
    gone = []
    for item in listing.items:
        metadata = call.resource.unpack(item)["metadata"]
        try:
            deleted = await engine.deleter.delete(
                call.resource, metadata.get("namespace", ""), metadata["name"], options, call.user
            )
        except ApiError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            continue
        gone.append(deleted.item)
    renderer = Renderer(call.resource, call.form, call.request, engine.clock.wall())
    return answer(call.request, renderer.many(gone, listing.meta))


async def delete_options(engine: Engine, call: Call) -> DeleteOptions:
    """Options from the body, else from the query."""
    write = write_options(call.request, "DeleteOptions")
    data = await bodies.read(call.request)
    given: Object = {}
    if data.strip():
        given = await offload.run(_delete_body, engine, call, data)
    else:
        if policy := call.request.option("propagationPolicy"):
            given["propagationPolicy"] = policy
        if "orphanDependents" in call.request.query:
            given["orphanDependents"] = boolean_option(call.request, "orphanDependents")
        if (grace := integer_option(call.request, "gracePeriodSeconds")) is not None:
            given["gracePeriodSeconds"] = grace
        if boolean_option(call.request, UNSAFE):
            given[UNSAFE] = True
    if write.dry_run:
        given["dryRun"] = ["All"]
    return options_of(given, collection=call.verb == "deletecollection")


def _delete_body(engine: Engine, call: Call, data: bytes) -> Object:
    body = bodies.decode(data, bodies.media_type(call.request))
    if not isinstance(body.value, dict):
        raise bad_request("the body must be a DeleteOptions object")
    try:
        options: Object = engine.shape("v1", "DeleteOptions").decode(body.value, "", Report())
    except TypeMismatch as error:
        raise bad_request(f"DeleteOptions cannot be decoded: {error}") from error
    kind, api_version = options.get("kind") or "DeleteOptions", options.get("apiVersion") or "v1"
    group, _, version = api_version.rpartition("/")
    known = group == "meta.k8s.io" or engine.registry.serves_group_version(group, version)
    if kind != "DeleteOptions" or not known:
        raise bad_request(f"expected DeleteOptions, got {kind} of {api_version}")
    return options


VERBS: Mapping[str, Verb] = {
    "get": get,
    "list": list_,
    "watch": watch,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": deletecollection,
}
