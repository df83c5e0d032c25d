"""The Kubernetes REST API as a conversation: kinds, paths, statuses, watch frames, wire formats, two chairs."""
