"""The functions that Kubernetes adds to CEL, in Python. Each file is one library, a tuple of `Function`."""

from podwire.protocols.cel.types import Function, Opaque

__all__ = ["Function", "Opaque"]
