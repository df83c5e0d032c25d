"""The runtime side of NRI: reports pods and containers to plugins and applies their adjustments."""

from podwire.runtime.nri.nri_hooks import ContainerUpdater, NriHooks

__all__ = ["ContainerUpdater", "NriHooks"]
