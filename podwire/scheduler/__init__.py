"""Finds a node for every pod that has none, and binds it. Speaks: k8sapi."""

__all__: list[str] = []
