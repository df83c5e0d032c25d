"""Locations of the compiled programs: `podwire-shim`, the parent of a container's processes, and `podwire-cni`.

The contract of `podwire-shim` is `shim/README.md`.
"""

from podwire.shim.find import HELP, ShimMissing, find_forwarder, find_shim
from podwire.shim.hook import install_hook

__all__ = ["HELP", "ShimMissing", "find_forwarder", "find_shim", "install_hook"]
