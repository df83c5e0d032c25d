"""Dynamic resource allocation: the kinds of resource.k8s.io in all their versions."""
