"""Finds a node for every pod that has none, and binds it. Speaks: k8sapi."""

from podwire.scheduler.algorithm import Chosen, Unschedulable, choose
from podwire.scheduler.profiles import Profile
from podwire.scheduler.queue import Limits
from podwire.scheduler.scheduler import Scheduler
from podwire.scheduler.snapshot import Snapshot

__all__ = ["Chosen", "Limits", "Profile", "Scheduler", "Snapshot", "Unschedulable", "choose"]
