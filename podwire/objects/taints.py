"""Taints of a node that a pod does not tolerate. Pure."""

from collections.abc import Iterable, Iterator

from podwire.objects.nodes import Taint
from podwire.objects.pods import Toleration

HARD = ("NoSchedule", "NoExecute")
SOFT = ("PreferNoSchedule",)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Without an effect it is for all of them; without a key, and with Exists, for all taints."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: Iterable[str] = HARD
) -> Iterator[Taint]:
    """Those of these effects that no toleration is for."""
    given = tuple(tolerations)
    for taint in taints:
        if taint.effect in effects and not any(tolerates(toleration, taint) for toleration in given):
            yield taint
