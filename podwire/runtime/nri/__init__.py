"""NRI's host in this runtime: pods and containers told to plugins, and their answers made into what is run."""

from podwire.runtime.nri.nri_hooks import Seat, Updating

__all__ = ["Seat", "Updating"]
