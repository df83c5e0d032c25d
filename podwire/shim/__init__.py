"""`podwire-shim`, the parent of a container's processes: where it is, and a stand-in in Python; where `podwire-cni` is.

The contract of the former is `shim/README.md`.
"""

from podwire.shim.find import Found, find, find_forwarder

__all__ = ["Found", "find", "find_forwarder"]
