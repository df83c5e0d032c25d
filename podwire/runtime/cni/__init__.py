"""Pods onto the network: the runtime's chair of CNI."""

from podwire.runtime.cni.caller import Caller
from podwire.runtime.cni.checker import Checker, Checking
from podwire.runtime.cni.conflists import Conflists
from podwire.runtime.cni.keeper import Keeper
from podwire.runtime.cni.plugins import Limits, Plugins

__all__ = ["Caller", "Checker", "Checking", "Conflists", "Keeper", "Limits", "Plugins"]
