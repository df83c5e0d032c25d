"""The kind of discovery.k8s.io."""
