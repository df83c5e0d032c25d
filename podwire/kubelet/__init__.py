"""Turns pods bound to this node into running containers. Speaks: k8sapi, cri."""

from podwire.kubelet.kubelet import Dependencies, Kubelet, KubeletSettings
from podwire.kubelet.paths import KubeletPaths

__all__ = ["Dependencies", "Kubelet", "KubeletPaths", "KubeletSettings"]
