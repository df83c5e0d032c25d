"""Asks containers how they are: startup, liveness and readiness probes."""

from podwire.kubelet.probes.manager import Probes
from podwire.kubelet.probes.ports import ExecResult, ProbeFailed, Prober, ProbeUnknown, Sockets
from podwire.kubelet.probes.prober import NodeProber
from podwire.kubelet.probes.threshold import Unhealthy

__all__ = ["ExecResult", "NodeProber", "ProbeFailed", "ProbeUnknown", "Prober", "Probes", "Sockets", "Unhealthy"]
