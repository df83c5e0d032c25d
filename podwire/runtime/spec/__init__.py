"""The OCI runtime specification of a container, decided from what CRI asks, what the image says and what the pod has.

Pure: messages and facts in, a config.json out. Nothing is looked up here but what the caller hands in.
"""

from podwire.runtime.spec.build import Container, Pod, build

__all__ = ["Container", "Pod", "build"]
