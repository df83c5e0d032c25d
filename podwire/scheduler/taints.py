"""Taints that a pod does not tolerate."""

from collections.abc import Iterable, Iterator

from podwire.objects.nodes import Taint
from podwire.objects.pods import Toleration

HARD = ("NoSchedule", "NoExecute")
SOFT = ("PreferNoSchedule",)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: Iterable[str] = HARD
) -> Iterator[Taint]:
    for taint in taints:
        if taint.effect in effects and not any(tolerates(each, taint) for each in tolerations):
            yield taint
