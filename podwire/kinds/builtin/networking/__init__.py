"""The kinds of networking.k8s.io."""
