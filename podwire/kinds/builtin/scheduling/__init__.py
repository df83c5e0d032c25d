"""The kind of scheduling.k8s.io."""
