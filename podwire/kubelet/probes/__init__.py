"""Startup, liveness and readiness probes of containers."""

from podwire.kubelet.probes.manager import ProbeResults, Probes
from podwire.kubelet.probes.ports import ExecResult, ProbeFailed, Prober, ProbeUnknown, Sockets
from podwire.kubelet.probes.prober import NodeProber
from podwire.kubelet.probes.threshold import Unhealthy

__all__ = [
    "ExecResult",
    "NodeProber",
    "ProbeFailed",
    "ProbeResults",
    "ProbeUnknown",
    "Prober",
    "Probes",
    "Sockets",
    "Unhealthy",
]
