"""Turns pods bound to this node into running containers. Speaks: k8sapi, cri."""

from podwire.kubelet.kubelet import Dependencies, Kubelet

__all__ = ["Dependencies", "Kubelet"]
