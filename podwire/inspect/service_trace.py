"""Records the way of a test packet in the trace of the pod that sent it, so that `podwire trace POD` draws it."""

import contextlib
from pathlib import Path

from podwire.cluster.tracing import PodCalls
from podwire.inspect.service_rules import Step
from podwire.trace.participants import ENDPOINT, NETWORK_PLUGIN, POD, PROXY

POLICY = "podwire-policy"
"""The place of steps that policies decide."""
_STOPPED = ("denied", "dropped", "rejected", "no rule", "leads to no chain")
_ARRIVED = ("connected", "sent")


class Stopped(Exception):
    """A packet goes no further; the name is the outcome of the arrow."""


def draw(
    socket: Path, node: str, uid: str, packet: str, steps: list[Step], *, probe: str = "", endpoint: str = ""
) -> None:
    """Records one call of the pod for the packet, and below it one for each rule, policy and endpoint.

    Without a collector at the socket nothing is recorded.
    """
    pod, proxy = PodCalls(POD, node, socket), PodCalls(PROXY, node, socket)
    with contextlib.suppress(Stopped), pod.call(uid, packet, PROXY):
        for step in steps:
            is_policy = step.where == POLICY
            method = f"{step.what}: {step.verdict}" if is_policy else f"{step.where}: {step.what}: {step.verdict}"
            with contextlib.suppress(Stopped), proxy.call(uid, method, NETWORK_PLUGIN if is_policy else PROXY):
                if step.verdict.startswith(_STOPPED):
                    raise Stopped(step.verdict)
        if not probe:
            return
        if endpoint:
            with contextlib.suppress(Stopped), proxy.call(uid, f"{packet.partition(' ')[0]} {endpoint}", ENDPOINT):
                _end(probe)
        _end(probe)


def _end(probe: str) -> None:
    if probe not in _ARRIVED:
        raise Stopped(probe)
