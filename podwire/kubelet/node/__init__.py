"""The node's own side of the API: its Node object, how it is, and the lease that says that it lives."""

from podwire.kubelet.node.agent import NodeAgent
from podwire.kubelet.node.conditions import Readiness, readiness
from podwire.kubelet.node.settings import Machine, NodeSettings, Thresholds, default_name

__all__ = ["Machine", "NodeAgent", "NodeSettings", "Readiness", "Thresholds", "default_name", "readiness"]
