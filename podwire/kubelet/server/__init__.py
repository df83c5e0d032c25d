"""What a kubelet serves itself, on port 10250: logs, commands, attaching, figures."""

from podwire.kubelet.server.auth import Reviewer
from podwire.kubelet.server.metrics import KubeletMetrics
from podwire.kubelet.server.server import Host, KubeletServer

__all__ = ["Host", "KubeletMetrics", "KubeletServer", "Reviewer"]
