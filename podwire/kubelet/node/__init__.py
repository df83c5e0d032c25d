"""The Node of this kubelet in the API: its registration, status and lease."""

from podwire.kubelet.node.agent import NodeAgent
from podwire.kubelet.node.conditions import Readiness, readiness
from podwire.kubelet.node.settings import Machine, NodeLimits, NodeSettings, default_name

__all__ = ["Machine", "NodeAgent", "NodeLimits", "NodeSettings", "Readiness", "default_name", "readiness"]
