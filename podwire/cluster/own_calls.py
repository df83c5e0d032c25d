"""Calls that a participant tells of itself, with the pod that it works for: only it knows for which."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from podwire.cluster import tracing
from podwire.interfaces import Hop
from podwire.trace.record import pod_id
from podwire.transports.tapped import Call, Tapped


class PodCalls:
    def __init__(self, participant: str, node: str) -> None:
        self._participant, self._tap = participant, tracing.tap(participant, node)

    @contextlib.contextmanager
    def call(self, uid: str, method: str, callee: str = "") -> Iterator[Call]:
        """To somebody, or (as if) to itself."""
        tap, pod = self._tap, pod_id(uid)
        told = None if tap is None else lambda hop: tap(_about(hop, pod))
        with Tapped(told, caller=self._participant, callee=callee or self._participant).call(method, None) as passing:
            yield passing


def _about(hop: Hop, pod: str) -> Hop:
    return replace(hop, pod=pod)
