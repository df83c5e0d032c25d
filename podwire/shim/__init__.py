"""`podwire-shim`, the parent of a container's processes: where it is, and a stand-in in Python.

Its contract is `shim/README.md`.
"""

from podwire.shim.find import Found, find

__all__ = ["Found", "find"]
