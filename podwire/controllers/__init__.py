"""Keeps what should follow from other objects: namespaces, service accounts, owners. Speaks: k8sapi."""
