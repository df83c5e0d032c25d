"""eviction: a deletion that asks the pod's disruption budget first."""

from dataclasses import replace

from podwire.apiserver import bodies, stored
from podwire.apiserver.call import Call, write_options
from podwire.apiserver.deletes import DeleteOptions, options_of
from podwire.apiserver.engine import Engine
from podwire.apiserver.registry import Resource
from podwire.apiserver.render import answer
from podwire.apiserver.stored import Object
from podwire.apiserver.subresources.binding import check_place
from podwire.apiserver.updates import Write
from podwire.apiserver.verbs import body_of
from podwire.objects.selectors import from_object
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Answer
from podwire.protocols.k8sapi.status import ApiError, Reason, not_found

SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
EVICTION = Kind(group="policy", version="v1", resource="evictions", kind="Eviction")
BEFORE = "policy/v1beta1"
"""What kubectl up to 1.21 sends; the same words, so the door stays open after the version itself is gone."""


async def create(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "CreateOptions")
    body = await body_of(call)
    if isinstance(body.value, dict) and body.value.get("apiVersion") == BEFORE:
        body.value["apiVersion"] = EVICTION.api_version
    shape = engine.shape("policy/v1", "Eviction")
    eviction = bodies.shape_as(body, EVICTION, shape, options.field_validation)
    check_place("Eviction", eviction["metadata"], call.namespace, call.name)
    deletion = options_of(eviction.get("deleteOptions", {}))
    if options.dry_run:
        deletion = replace(deletion, dry_run=True)
    pod = await engine.find(call.resource, call.namespace, call.name)
    if pod is None:
        raise not_found("pods", call.name)
    if not _unhindered(pod):
        await _tried(engine, call, deletion)
        await _spend(engine, call, pod, deletion)
    await engine.deleter.delete(call.resource, call.namespace, call.name, deletion, call.user)
    return answer(call.request, stored.encode(SUCCESS), status=201, warnings=body.warnings)


def _unhindered(pod: Object) -> bool:
    """Pods that do not run, or go anyway, cost no budget."""
    phase = pod.get("status", {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


async def _tried(engine: Engine, call: Call, options: DeleteOptions) -> None:
    """Whether the deletion would be refused: a budget is not spent on that."""
    trial = replace(options, dry_run=True)
    await engine.deleter.delete(call.resource, call.namespace, call.name, trial, call.user)


async def _spend(engine: Engine, call: Call, pod: Object, options: DeleteOptions) -> None:
    """Take one disruption from the budget that covers the pod; 429 when none is left."""
    budgets = engine.registry.builtin("policy", "poddisruptionbudgets")
    covering = [each for each in await _all(engine, budgets, call.namespace) if covers(each, pod)]
    if not covering:
        return
    if len(covering) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(Reason.INTERNAL_ERROR, why)
    now = rfc3339(engine.clock.wall())
    write = Write(
        resource=budgets,
        namespace=call.namespace,
        name=covering[0]["metadata"]["name"],
        change=lambda budget: spent(budget, pod["metadata"]["name"], now),
        user=call.user,
        subresource="status",
        dry_run=options.dry_run,
    )
    await engine.updater.update(write)


async def _all(engine: Engine, budgets: Resource, namespace: str) -> list[Object]:
    page = await engine.store.list(budgets.scope(namespace))
    return [budgets.unpack(each) for each in page.items]


def covers(budget: Object, pod: Object) -> bool:
    """Whether a budget's selector picks the pod; no selector picks none."""
    selector = budget.get("spec", {}).get("selector")
    return selector is not None and from_object(selector).matches(pod["metadata"].get("labels", {}))


def spent(budget: Object, pod: str, now: str) -> Object:
    """The budget with one disruption less and the pod remembered; raises TooManyRequests."""
    status = budget.setdefault("status", {})
    name, allowed = budget["metadata"]["name"], status.get("disruptionsAllowed", 0)
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0) or allowed <= 0:
        need, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        why = f"The disruption budget {name} needs {need} healthy pods and has {healthy} currently"
        raise ApiError(
            Reason.TOO_MANY_REQUESTS,
            "Cannot evict pod as it would violate the pod's disruption budget.",
            details={"causes": [{"reason": "DisruptionBudget", "message": why}]},
        )
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = {**status.get("disruptedPods", {}), pod: now}
    return budget
