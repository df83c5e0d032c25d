"""Devices for pods: which of them meet the claims of a pod on a node, found by a pure search over what is known."""
