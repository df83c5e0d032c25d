"""Dynamic resource allocation between a kubelet and drivers: messages of both versions, `methods` their calls."""
