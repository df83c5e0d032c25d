"""Sends packets to a Service on to one of its endpoints, by nftables. Speaks: k8sapi, nfnetlink."""

from podwire.proxy.kernel import Kernel
from podwire.proxy.proxy import Limits, Proxy, ProxySettings

__all__ = ["Kernel", "Limits", "Proxy", "ProxySettings"]
