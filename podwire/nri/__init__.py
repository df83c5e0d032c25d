"""NRI for Python: `Plugin` for the plugin side, `adaptation` for the runtime side."""

from podwire.nri.adjustment import Adjustment, Updates
from podwire.nri.plugin import Plugin, Runtime
from podwire.nri.program import main
from podwire.nri.runner import run
from podwire.protocols.nri import nri_pb2 as pb

__all__ = ["Adjustment", "Plugin", "Runtime", "Updates", "main", "pb", "run"]
