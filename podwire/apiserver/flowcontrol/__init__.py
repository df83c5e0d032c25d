"""API priority and fairness: which request goes first when there are too many."""

from podwire.apiserver.flowcontrol.controller import FlowControl, FlowInformer
from podwire.apiserver.flowcontrol.levels import Seats
from podwire.apiserver.flowcontrol.watches import WatchLimit

__all__ = ["FlowControl", "FlowInformer", "Seats", "WatchLimit"]
