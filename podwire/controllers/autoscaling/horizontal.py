"""HorizontalPodAutoscaler: reads metrics every 15 seconds and writes the scale of its target."""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import msgspec

from podwire.controllers.autoscaling.metric_sources import MetricError, Proposal, Sources, Target
from podwire.controllers.autoscaling.metrics_client import MetricsClient
from podwire.controllers.autoscaling.replica_calculator import Moment, NoReplicas, Pod, Tolerances
from podwire.controllers.autoscaling.scaling_rules import History, limit
from podwire.controllers.context import Context
from podwire.controllers.kinds import AUTOSCALERS, PODS
from podwire.controllers.metadata import PartialObject
from podwire.controllers.reconciler import Reconciler
from podwire.objects.quantity import parse as parse_quantity
from podwire.objects.selectors import LabelSelector, parse_labels
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING, Reference
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

ABLE, ACTIVE, LIMITED = "AbleToScale", "ScalingActive", "ScalingLimited"
_decode_pod = msgspec.json.Decoder(Pod).decode


class _Spec(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw()


_decode_spec = msgspec.json.Decoder(_Spec).decode


class _GivenUp(Exception):
    """Nothing can be scaled now; conditions and events say why."""


class Autoscalers(Reconciler):
    """Scales targets; each autoscaler is reconciled when its spec changes, and once in every period."""

    name: ClassVar[str] = "horizontal-pod-autoscaler-controller"
    component: ClassVar[str] = "horizontal-pod-autoscaler"
    kind: ClassVar[Kind] = AUTOSCALERS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._sources = Sources(MetricsClient(context.api), self._resource_of)
        self._histories: dict[str, History] = {}
        self._pod_selectors: dict[str, LabelSelector] = {}

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        """A change of the status, which this controller writes itself, is not a reason to read metrics again."""
        if before is not None and now is not None and _decode_spec(before.json) == _decode_spec(now.json):
            return
        super().on_change(before, now)

    def forget(self, uid: str) -> None:
        super().forget(uid)
        self._histories.pop(uid, None)
        self._pod_selectors.pop(uid, None)

    async def reconcile(self, owner: PartialObject) -> None:
        """1. Read the scale.  2. Evaluate all metrics.  3. Limit the change.  4. Write the scale.  5. Write the status.
        6. Come back after a period."""
        if owner.deleting:
            return
        hpa = owner.object()
        status: dict[str, Any] = dict(hpa.get("status") or {})
        work = _Autoscaler(self, hpa, status, self.clock.wall())
        try:
            await work.scale(self._histories.setdefault(owner.uid, History()))
        except _GivenUp:
            pass
        finally:
            self.enqueue_after(owner.uid, self.limits.autoscaler_period)
        await self.update_status(hpa, work.status)

    @property
    def sources(self) -> Sources:
        return self._sources

    async def target_kind(self, reference: Mapping[str, Any]) -> Kind:
        """Returns the kind of a target, in the version that the server prefers. Raises ApiError, ClientError."""
        group = reference.get("apiVersion", "").rpartition("/")[0]
        name = reference["kind"]
        for kind in await self.context.kinds.all():
            if (kind.group, kind.kind) == (group, name):
                return kind
        matching = f'"{name}" in group "{group}"' if group else f'"{name}"'
        raise ApiError(Reason.NOT_FOUND, f"no matches for kind {matching}")

    async def _resource_of(self, api_version: str, kind: str) -> str:
        try:
            known = await self.target_kind({"apiVersion": api_version, "kind": kind})
        except (ApiError, ClientError) as error:
            raise NoReplicas(f"unable to map kind {kind} to resource: {error}") from error
        plain = not known.group
        return known.resource if plain else f"{known.resource}.{known.group}"

    def pods_of(self, namespace: str, selector: LabelSelector) -> list[PartialObject]:
        return [pod for pod in self.graph.listed(PODS, namespace) if selector.matches(pod.labels)]

    def rivals(self, hpa: Object, selector: LabelSelector, pods: list[PartialObject]) -> list[str]:
        """Notes the selector of an autoscaler; returns all autoscalers that select some of its pods."""
        meta = hpa["metadata"]
        self._pod_selectors[meta["uid"]] = selector
        return sorted(
            f"{{{other.name} {other.namespace}}}"
            for other in self.graph.listed(AUTOSCALERS, meta["namespace"])
            if (selected := self._pod_selectors.get(other.uid)) is not None
            and any(selected.matches(pod.labels) for pod in pods)
        )


class _Autoscaler:
    """One reconciliation of one autoscaler; `status` becomes its new status."""

    def __init__(self, controller: Autoscalers, hpa: Object, status: dict[str, Any], now: float) -> None:
        self._controller = controller
        self._hpa = hpa
        self._spec: Mapping[str, Any] = hpa["spec"]
        self._now = now
        self.status = status
        meta = hpa["metadata"]
        self._namespace = meta["namespace"]
        self._reference = Reference(
            AUTOSCALERS.kind, meta["name"], self._namespace, meta["uid"], AUTOSCALERS.api_version
        )

    async def scale(self, history: History) -> None:
        """Raises _GivenUp."""
        kind, scale = await self._read_scale()
        current: int = scale["spec"].get("replicas") or 0
        history.begin(current, self._now)
        lowest, highest = self._spec.get("minReplicas", 1), self._spec["maxReplicas"]
        desired, reason, metrics = current, "", self.status.get("currentMetrics")
        if current == 0:
            text = "scaling is disabled since the replica count of the target is zero"
            self._condition(ACTIVE, "False", "ScalingDisabled", text)
            metrics = None
        elif current > highest:
            desired, reason, metrics = highest, "Current number of replicas above Spec.MaxReplicas", None
        elif current < lowest:
            desired, reason, metrics = lowest, "Current number of replicas below Spec.MinReplicas", None
        else:
            wanted, name, metrics = await self._evaluate(scale, current)
            if wanted > current:
                reason = f"{name} above target"
            elif wanted < current:
                reason = "All metrics below target"
            limited = limit(
                history, self._spec.get("behavior"), current, wanted, (lowest, highest), self._now,
                self._controller.limits.autoscaler_down_window,
            )  # fmt: skip
            self._condition(ABLE, "True", *limited.able)
            is_limited, why, text = limited.limited
            self._condition(LIMITED, "True" if is_limited else "False", why, text)
            desired = limited.replicas
        if desired != current:
            await self._write_scale(kind, current, desired, reason, metrics)
            history.rescaled(current, desired, self._spec.get("behavior"), self._now)
        self._replicas(current, desired, metrics, rescaled=desired != current)

    async def _read_scale(self) -> tuple[Kind, Object]:
        target = self._spec["scaleTargetRef"]
        try:
            kind = await self._controller.target_kind(target)
            scale = await self._controller.api.get(kind, target["name"], self._namespace, subresource="scale")
        except (ApiError, ClientError) as error:
            text = error.message if isinstance(error, ApiError) else str(error)
            self._event(WARNING, "FailedGetScale", text)
            message = f"the HPA controller was unable to get the target's current scale: {text}"
            self._condition(ABLE, "False", "FailedGetScale", message)
            raise _GivenUp from error
        text = "the HPA controller was able to get the target's current scale"
        self._condition(ABLE, "True", "SucceededGetScale", text)
        return kind, scale

    async def _evaluate(self, scale: Object, current: int) -> tuple[int, str, list[dict[str, Any]]]:
        """Returns the highest proposal of all metrics, its name, and their statuses.

        A metric that fails is ignored, unless the others would scale down.
        """
        selector = self._selector(str((scale.get("status") or {}).get("selector") or ""))
        pods = self._controller.pods_of(self._namespace, selector)
        rivals = self._controller.rivals(self._hpa, selector, pods)
        if len(rivals) > 1:
            shown = f"[{' '.join(rivals)}]"
            self._invalid_selector(
                "AmbiguousSelector", f"pods by selector {selector} are controlled by multiple HPAs: {shown}"
            )
        target = Target(
            namespace=self._namespace,
            selector=str(selector),
            spec_replicas=current,
            status_replicas=(scale.get("status") or {}).get("replicas") or 0,
            pods=[_decode_pod(pod.json) for pod in pods],
            tolerances=self._tolerances(),
            moment=Moment(
                now=self._now,
                cpu_initialization=self._controller.limits.autoscaler_cpu_initialization,
                initial_readiness=self._controller.limits.autoscaler_initial_readiness,
            ),
        )
        best: Proposal | None = None
        errors: list[MetricError] = []
        statuses: list[dict[str, Any]] = []
        specs = self._spec.get("metrics") or ()
        for spec in specs:
            try:
                proposal = await self._controller.sources.evaluate(spec, target)
            except MetricError as error:
                self._event(WARNING, error.reason, error.cause)
                errors.append(error)
                statuses.append({"type": ""})
                continue
            statuses.append(proposal.status)
            if best is None or proposal.replicas > best.replicas:
                best = proposal
        if best is None or (errors and best.replicas < current):
            first = errors[0] if errors else MetricError("InvalidMetricSourceType", "no metrics", "no metrics")
            text = f"the HPA was unable to compute the replica count: {first.cause}"
            self._condition(ACTIVE, "False", first.reason, text)
            summed = f"invalid metrics ({len(errors)} invalid out of {len(specs)}), first error is: {first}"
            self._event(WARNING, "FailedComputeMetricsReplicas", summed)
            self._replicas(current, self.status.get("desiredReplicas") or 0, statuses, rescaled=False)
            raise _GivenUp
        text = f"the HPA was able to successfully calculate a replica count from {best.name}"
        self._condition(ACTIVE, "True", "ValidMetricFound", text)
        return best.replicas, best.name, statuses

    def _selector(self, text: str) -> LabelSelector:
        if not text:
            self._event(WARNING, "SelectorRequired", "selector is required")
            self._condition(ACTIVE, "False", "InvalidSelector", "the HPA target's scale is missing a selector")
            raise _GivenUp
        try:
            return parse_labels(text)
        except ValueError as error:
            self._invalid_selector(
                "InvalidSelector", f"couldn't convert selector into a corresponding internal selector object: {error}"
            )

    def _invalid_selector(self, reason: str, text: str) -> NoReturn:
        self._event(WARNING, reason, text)
        self._condition(ACTIVE, "False", reason, text)
        raise _GivenUp

    def _tolerances(self) -> Tolerances:
        default = self._controller.limits.autoscaler_tolerance
        behavior = self._spec.get("behavior") or {}
        down, up = (
            float(parse_quantity(str(rules["tolerance"])).nano) / 1e9 if rules.get("tolerance") is not None else default
            for rules in (behavior.get("scaleDown") or {}, behavior.get("scaleUp") or {})
        )
        return Tolerances(down, up)

    async def _write_scale(
        self, kind: Kind, current: int, desired: int, reason: str, metrics: list[dict[str, Any]] | None
    ) -> None:
        name = self._spec["scaleTargetRef"]["name"]
        try:
            await self._controller.api.patch(
                kind, name, {"spec": {"replicas": desired}}, self._namespace, subresource="scale"
            )
        except (ApiError, ClientError) as error:
            text = error.message if isinstance(error, ApiError) else str(error)
            self._event(WARNING, "FailedRescale", f"New size: {desired}; reason: {reason}; error: {text}")
            message = f"the HPA controller was unable to update the target scale: {text}"
            self._condition(ABLE, "False", "FailedUpdateScale", message)
            self._replicas(current, self.status.get("desiredReplicas") or 0, metrics, rescaled=False)
            raise _GivenUp from error
        message = f"the HPA controller was able to update the target scale to {desired}"
        self._condition(ABLE, "True", "SucceededRescale", message)
        self._event(NORMAL, "SuccessfulRescale", f"New size: {desired}; reason: {reason}")
        log.info(
            "autoscaler changed a scale",
            extra={"autoscaler": self._reference.name, "before": current, "now": desired, "reason": reason},
        )

    def _replicas(self, current: int, desired: int, metrics: list[dict[str, Any]] | None, *, rescaled: bool) -> None:
        self.status |= {"currentReplicas": current, "desiredReplicas": desired}
        if metrics is not None:
            self.status["currentMetrics"] = metrics
        else:
            self.status.pop("currentMetrics", None)
        if rescaled:
            self.status["lastScaleTime"] = rfc3339(self._now)

    def _condition(self, type_: str, status: str, reason: str, message: str) -> None:
        conditions = [dict(condition) for condition in self.status.get("conditions") or ()]
        known = next((condition for condition in conditions if condition["type"] == type_), None)
        if known is None:
            known = {"type": type_}
            conditions.append(known)
        if known.get("status") != status:
            known["lastTransitionTime"] = rfc3339(self._now)
        known |= {"status": status, "reason": reason, "message": message}
        self.status["conditions"] = conditions

    def _event(self, type_: str, reason: str, message: str) -> None:
        self._controller.recorder.tell(self._reference, type_, reason, message)
