"""Pods onto the network: the runtime's chair of CNI."""

from podwire.runtime.cni.check import Checker, Checking
from podwire.runtime.cni.conflists import Conflists
from podwire.runtime.cni.network import Caller
from podwire.runtime.cni.plugins import Limits, Plugins
from podwire.runtime.cni.reconciler import Keeper

__all__ = ["Caller", "Checker", "Checking", "Conflists", "Keeper", "Limits", "Plugins"]
