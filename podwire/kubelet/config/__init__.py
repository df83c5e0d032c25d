"""From a pod to the messages of CRI: pure. What a container sees of its pod, its node, ConfigMaps and Secrets."""

__all__: list[str] = []
