"""What a kubelet serves itself, on port 10250: logs, commands, attaching, figures."""

from podwire.kubelet.server.access import Reviewer
from podwire.kubelet.server.meter import Meter
from podwire.kubelet.server.server import Host, KubeletServer

__all__ = ["Host", "KubeletServer", "Meter", "Reviewer"]
