"""Asks containers how they are: startup, liveness and readiness probes."""

from podwire.kubelet.probes.manager import Probes
from podwire.kubelet.probes.ports import Exited, Prober, Sockets, Unanswered, Unasked
from podwire.kubelet.probes.prober import NodeProber
from podwire.kubelet.probes.threshold import Unhealthy

__all__ = ["Exited", "NodeProber", "Prober", "Probes", "Sockets", "Unanswered", "Unasked", "Unhealthy"]
