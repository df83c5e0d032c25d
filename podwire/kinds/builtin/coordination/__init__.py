"""The kind of coordination.k8s.io."""
