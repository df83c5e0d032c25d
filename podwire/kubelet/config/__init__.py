"""From a pod to the messages of CRI, and the environment of its containers. Pure."""

__all__: list[str] = []
