"""Turns pods bound to this node into running containers. Speaks: k8sapi, cri."""

__all__: list[str] = []
