"""Turns pods bound to this node into running containers. Speaks: k8sapi, cri."""

from podwire.kubelet.kubelet import Kubelet, Outside

__all__ = ["Kubelet", "Outside"]
