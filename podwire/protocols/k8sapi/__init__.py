"""The Kubernetes REST API: kinds, paths, statuses, watch frames, wire formats, client side and server side."""
