"""Hollow nodes: the decisions of kubelets over simulated runtimes, thousands of nodes in one process."""

from podwire.kubelet.hollow.nodes import HollowNodes
from podwire.kubelet.hollow.settings import HollowSettings

__all__ = ["HollowNodes", "HollowSettings"]
