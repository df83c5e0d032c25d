"""binding: assigns a pod to a node, once."""

from podwire.apiserver.admission import subresource_policies
from podwire.apiserver.engine import Engine
from podwire.apiserver.request import bodies
from podwire.apiserver.request.call import Call, write_options
from podwire.apiserver.request.response import answer
from podwire.apiserver.request.verbs import body_of
from podwire.apiserver.write.updates import Write
from podwire.kinds import stored
from podwire.kinds.stored import Object
from podwire.objects.names import dns_subdomain
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.server_side import Answer
from podwire.protocols.k8sapi.status import (
    ApiError,
    bad_request,
    conflict,
    invalid,
    invalid_object,
    no_such_resource,
    not_supported,
    required,
)

SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


async def create(engine: Engine, call: Call) -> Answer:
    """Binds the pod of the URL, or, at /bindings, the one that the body names."""
    options = write_options(call.request, "CreateOptions")
    bindings = engine.registry.builtin("", "bindings")
    body = await body_of(call)
    wanted = bodies.shape_as(body, bindings.kind, bindings.shape, options.field_validation)
    name = call.name or wanted["metadata"].get("name", "")
    check_place("Binding", wanted["metadata"], call.namespace, name)
    _node(wanted, name)
    pods = engine.registry.builtin("", "pods")
    wanted = await subresource_policies.created(engine, call, wanted, name, "binding", dry_run=options.dry_run)
    node = _node(wanted, name)  # a webhook may have changed it
    now = engine.clock.wall()
    write = Write(
        resource=pods,
        namespace=call.namespace,
        name=name,
        change=lambda pod: bound(pod, node, wanted, now),
        user=call.user,
        subresource="binding",
        dry_run=options.dry_run,
        field_manager=None,
        copies=True,
        run_policies=False,
    )
    await engine.updater.update(write)
    return answer(call.request, stored.encode(SUCCESS), status=201, warnings=body.warnings)


def check_place(kind: str, metadata: Object, namespace: str, name: str) -> None:
    """Checks that a body names the URL's object, if it names one."""
    if metadata.get("namespace", namespace) not in ("", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if metadata.get("name", name) not in ("", name):
        raise bad_request(f"name in URL does not match name in {kind} object")


def _node(wanted: Object, name: str) -> str:
    if not name:
        raise no_such_resource()
    target = wanted.get("target", {})
    errors = []
    if target.get("kind", "Node") not in ("", "Node"):
        errors.append(not_supported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        errors.append(required("target.name"))
    else:
        errors += [invalid("target.name", target["name"], why) for why in dns_subdomain(target["name"])]
    if errors:
        raise invalid_object("Binding", name, errors)
    node: str = target["name"]
    return node


def bound(pod: Object, node: str, wanted: Object, now: float) -> Object:
    """Returns a copy of the pod on its node; raises Conflict when it has a node or is being deleted."""
    metadata, spec = pod["metadata"], pod["spec"]
    name = metadata["name"]
    uid = wanted["metadata"].get("uid")
    if uid and uid != metadata["uid"]:
        raise _refused(name, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}")
    version = wanted["metadata"].get("resourceVersion")
    if version and version != metadata["resourceVersion"]:
        why = (
            f"ResourceVersion in precondition: {version}, ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
        raise _refused(name, f"Precondition failed: {why}")
    if metadata.get("deletionTimestamp"):
        raise _refused(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _refused(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _refused(name, f"pod {name} has non-empty .spec.schedulingGates")
    given = {part: more for part in ("annotations", "labels") if (more := wanted["metadata"].get(part))}
    joined = {part: {**metadata.get(part, {}), **more} for part, more in given.items()}
    return {
        **pod,
        "metadata": {**metadata, **joined},
        "spec": {**spec, "nodeName": node},
        "status": _scheduled(pod, now),
    }


def _refused(name: str, why: str) -> ApiError:
    return conflict("pods/binding", name, why)


def _scheduled(pod: Object, now: float) -> Object:
    status = {**pod.get("status", {})}
    status.pop("nominatedNodeName", None)  # only a hint for the scheduler
    kept = [condition for condition in status.get("conditions", []) if condition.get("type") != "PodScheduled"]
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": rfc3339(now)}
    if generation := pod["metadata"].get("generation"):
        condition["observedGeneration"] = generation
    status["conditions"] = [*kept, condition]
    return status
