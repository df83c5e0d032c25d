"""PodDisruptionBudgets, as far as preemption respects them: victims that violate one are the last choice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.objects import selectors
from podwire.objects.selectors import LabelSelector
from podwire.scheduler.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class Budget:
    namespace: str
    selector: LabelSelector
    allowed: int
    """How many more of its pods may be evicted now."""
    disrupted: frozenset[str]
    """Names of pods whose eviction the API server has already counted."""

    def covers(self, info: PodInfo) -> bool:
        """Returns whether evicting the pod uses up the budget; an empty selector covers no pod."""
        pod = info.pod
        return (
            bool(self.selector.requirements and pod.metadata.labels)
            and pod.namespace == self.namespace
            and pod.name not in self.disrupted
            and self.selector.matches(pod.metadata.labels)
        )


def read(object_: Mapping[str, Any]) -> Budget:
    """Parses a PodDisruptionBudget; raises ValueError for an invalid selector."""
    spec, status = object_.get("spec") or {}, object_.get("status") or {}
    return Budget(
        namespace=object_["metadata"].get("namespace", ""),
        selector=selectors.from_object(spec.get("selector") or {}),
        allowed=status.get("disruptionsAllowed", 0),
        disrupted=frozenset(status.get("disruptedPods") or ()),
    )


def violating(pods: Sequence[PodInfo], budgets: Iterable[Budget]) -> set[str]:
    """Returns the uids of those pods that violate a budget if all of them are evicted in this order."""
    uids = set()
    for budget in budgets:
        covered = [info.pod.uid for info in pods if budget.covers(info)]
        uids.update(covered[max(budget.allowed, 0) :])
    return uids
