"""An index of the pods that use each claim."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from podwire.controllers.graph import Graph
from podwire.controllers.kinds import PODS
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.objects.persistent_volumes import claims_of_pod

Ref = tuple[str, str]
"""Namespace and name of a claim."""


class _Spec(msgspec.Struct):
    volumes: tuple[dict[str, Any], ...] = ()


class _Pod(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode = msgspec.json.Decoder(_Pod).decode


def claims_of(pod: PartialObject) -> list[tuple[str, bool]]:
    """Returns the names of a pod's claims, and whether each belongs to an ephemeral volume."""
    if b'"persistentVolumeClaim"' not in pod.json and b'"ephemeral"' not in pod.json:
        return []
    return claims_of_pod(pod.name, _decode(pod.json).spec.volumes)


class ClaimUsers:
    """An index of pods by claim. The volumes of a pod never change, so each is read once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._users: defaultdict[Ref, set[str]] = defaultdict(set)
        self._claims: dict[str, tuple[Ref, ...]] = {}

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> tuple[Ref, ...]:
        """Follows the change of a pod; returns its claims."""
        latest = now or before
        if latest is None or latest.resource != resource_of(PODS):
            return ()
        if now is not None:
            if before is None or before is now:
                claims = tuple((latest.namespace, name) for name, _ephemeral in claims_of(latest))
                if claims:
                    self._claims[latest.uid] = claims
                for claim in claims:
                    self._users[claim].add(latest.uid)
            return self._claims.get(latest.uid, ())
        claims = self._claims.pop(latest.uid, ())
        for claim in claims:
            self._users[claim].discard(latest.uid)
            if not self._users[claim]:
                del self._users[claim]
        return claims

    def pods(self, claim: Ref) -> Iterator[PartialObject]:
        """Yields the pods that use a claim."""
        for uid in sorted(self._users.get(claim, ())):
            if (pod := self._graph.node(uid)) is not None:
                yield pod
