"""NRI for Python, both chairs: `Plugin` is the plugin's, `host` is the runtime's."""

from podwire.nri.adjustment import Adjustment
from podwire.nri.plugin import Plugin
from podwire.nri.program import main
from podwire.nri.runner import run
from podwire.nri.runtime import Runtime
from podwire.nri.updates import Updates
from podwire.protocols.nri import nri_pb2 as pb

__all__ = ["Adjustment", "Plugin", "Runtime", "Updates", "main", "pb", "run"]
