"""Static pods: pods from files of the node, which run without an API server, and their mirrors in the API."""

from podwire.kubelet.static.static_pods import StaticLimits, StaticPods

__all__ = ["StaticLimits", "StaticPods"]
