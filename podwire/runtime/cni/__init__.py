"""The runtime side of CNI: attaches pods to networks by plugins, as libcni does."""

from podwire.runtime.cni.check import Checker, CheckSettings
from podwire.runtime.cni.conflists import Conflists
from podwire.runtime.cni.limits import CniLimits
from podwire.runtime.cni.network import CniNetwork
from podwire.runtime.cni.plugins import Plugins
from podwire.runtime.cni.reconciler import Reconciler

__all__ = ["CheckSettings", "Checker", "CniLimits", "CniNetwork", "Conflists", "Plugins", "Reconciler"]
