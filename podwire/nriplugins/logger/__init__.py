"""Tells of everything that a runtime does with pods and containers. Copy me."""

from podwire.nriplugins.logger.plugin import Logger

__all__ = ["Logger"]
