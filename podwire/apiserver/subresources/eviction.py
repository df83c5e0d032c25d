"""eviction: a deletion that respects the pod's disruption budget."""

from dataclasses import replace

from podwire.apiserver.admission import subresource_policies
from podwire.apiserver.engine import Engine
from podwire.apiserver.request import bodies
from podwire.apiserver.request.call import Call, write_options
from podwire.apiserver.request.response import answer
from podwire.apiserver.request.verbs import body_of
from podwire.apiserver.subresources.binding import check_place
from podwire.apiserver.write.deletion import DeleteOptions, options_of
from podwire.apiserver.write.updates import Write
from podwire.kinds import stored
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.objects.selectors import from_object
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Answer
from podwire.protocols.k8sapi.status import ApiError, Reason, not_found

SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
EVICTION = Kind(group="policy", version="v1", resource="evictions", kind="Eviction")
LEGACY_VERSION = "policy/v1beta1"
"""Sent by kubectl up to 1.21; accepted although the version itself is no longer served."""


async def create(engine: Engine, call: Call) -> Answer:
    options = write_options(call.request, "CreateOptions")
    body = await body_of(call)
    if isinstance(body.value, dict) and body.value.get("apiVersion") == LEGACY_VERSION:
        body.value["apiVersion"] = EVICTION.api_version
    shape = engine.shape("policy/v1", "Eviction")
    eviction = bodies.shape_as(body, EVICTION, shape, options.field_validation)
    check_place("Eviction", eviction["metadata"], call.namespace, call.name)
    deletion = replace(options_of(eviction.get("deleteOptions", {})), run_policies=False)
    if options.dry_run:
        deletion = replace(deletion, dry_run=True)
    pod = await engine.find(call.resource, call.namespace, call.name)
    if pod is None:
        raise not_found("pods", call.name)
    await subresource_policies.created(engine, call, eviction, call.name, "eviction", dry_run=deletion.dry_run)
    # Tries the deletion as a dry run, so that no budget is spent on a refused one.
    trial = replace(deletion, dry_run=True)
    await engine.deleter.delete(call.resource, call.namespace, call.name, trial, call.user)
    if not _needs_no_budget(pod):
        await _consume_budget(engine, call, pod, deletion)
    await _evict(engine, call, deletion)
    return answer(call.request, stored.encode(SUCCESS), status=201, warnings=body.warnings)


def _needs_no_budget(pod: Object) -> bool:
    """Returns whether a pod needs no budget: it does not run, or is being deleted."""
    phase = pod.get("status", {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


async def _evict(engine: Engine, call: Call, options: DeleteOptions) -> None:
    """Sets the condition DisruptionTarget, then deletes the pod."""
    if not options.dry_run:
        now = rfc3339(engine.clock.wall())
        write = Write(
            resource=call.resource,
            namespace=call.namespace,
            name=call.name,
            change=lambda pod: with_disruption_target(pod, now),
            user=call.user,
            subresource="status",
            field_manager=None,
            run_policies=False,
        )
        item = await engine.updater.update(write)
        if options.resource_version:
            options = replace(options, resource_version=str(item.revision))
    await engine.deleter.delete(call.resource, call.namespace, call.name, options, call.user)


def with_disruption_target(pod: Object, now: str) -> Object:
    """Returns the pod with the condition DisruptionTarget, which tells its controllers that it was evicted and did not
    fail."""
    conditions = pod.get("status", {}).get("conditions", [])
    old: Object = next((condition for condition in conditions if condition.get("type") == "DisruptionTarget"), {})
    since = old.get("lastTransitionTime", now) if old.get("status") == "True" else now
    condition = {"type": "DisruptionTarget", "status": "True", "lastProbeTime": None, "lastTransitionTime": since,
                 "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}  # fmt: skip
    if generation := pod["metadata"].get("generation"):
        condition["observedGeneration"] = generation
    others = [condition for condition in conditions if condition.get("type") != "DisruptionTarget"]
    return {**pod, "status": {**pod.get("status", {}), "conditions": [*others, condition]}}


async def _consume_budget(engine: Engine, call: Call, pod: Object, options: DeleteOptions) -> None:
    """Consumes one disruption of the pod's budget; 429 when none is left."""
    budgets = engine.registry.builtin("policy", "poddisruptionbudgets")
    covering = [budget for budget in await _all(engine, budgets, call.namespace) if covers(budget, pod)]
    if not covering:
        return
    if len(covering) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(Reason.INTERNAL_ERROR, why)
    if not ready(pod) and ignores_unready(covering[0]):
        return
    now = rfc3339(engine.clock.wall())
    write = Write(
        resource=budgets,
        namespace=call.namespace,
        name=covering[0]["metadata"]["name"],
        change=lambda budget: consume(budget, pod["metadata"]["name"], now),
        user=call.user,
        subresource="status",
        dry_run=options.dry_run,
    )
    await engine.updater.update(write)


async def _all(engine: Engine, budgets: Resource, namespace: str) -> list[Object]:
    page = await engine.store.list(budgets.scope(namespace))
    return [budgets.unpack(item) for item in page.items]


def covers(budget: Object, pod: Object) -> bool:
    """Returns whether a budget's selector matches the pod; no selector matches none."""
    selector = budget.get("spec", {}).get("selector")
    return selector is not None and from_object(selector).matches(pod["metadata"].get("labels", {}))


def ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def ignores_unready(budget: Object) -> bool:
    """Returns whether an unready pod needs no budget: by the budget's policy, or while enough pods are healthy."""
    status = budget.get("status", {})
    enough: bool = status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
    return enough or budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"


def consume(budget: Object, pod: str, now: str) -> Object:
    """Returns the budget with one disruption less and the pod recorded; raises TooManyRequests."""
    status = budget.setdefault("status", {})
    name, allowed = budget["metadata"]["name"], status.get("disruptionsAllowed", 0)
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _budget_exceeded(f"The disruption budget {name} is still being processed by the server.", wait=10)
    if allowed <= 0:
        raise _budget_exceeded(_why(budget))
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = {**status.get("disruptedPods", {}), pod: now}
    return budget


def _why(budget: Object) -> str:
    """Explains why a budget allows no disruption."""
    status, name = budget["status"], budget["metadata"]["name"]
    need, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    conditions = [
        condition for condition in status.get("conditions", []) if condition.get("type") == "DisruptionAllowed"
    ]
    said: Object = next(
        (condition for condition in conditions if condition.get("status") == "False" and condition.get("message")), {}
    )
    nothing = f"The disruption budget {name} does not allow evicting pods currently"
    if said.get("reason") == "SyncFailed":
        return f"{nothing} because it failed sync: {said['message']}"
    if healthy <= need:
        return f"The disruption budget {name} needs {need} healthy pods and has {healthy} currently"
    return f"{nothing} ({said['reason']}): {said['message']}" if said else nothing


def _budget_exceeded(why: str, *, wait: int = 0) -> ApiError:
    return ApiError(
        Reason.TOO_MANY_REQUESTS,
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details={
            "causes": [{"reason": "DisruptionBudget", "message": why}],
            **({"retryAfterSeconds": wait} if wait else {}),
        },
        headers=(("Retry-After", str(wait)),) if wait else (),
    )
