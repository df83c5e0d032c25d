"""The kubelet's HTTP API on port 10250: logs, exec, attach, port-forward, metrics."""

from podwire.kubelet.server.auth import Reviewer
from podwire.kubelet.server.metrics import KubeletMetrics
from podwire.kubelet.server.server import Host, KubeletServer

__all__ = ["Host", "KubeletMetrics", "KubeletServer", "Reviewer"]
