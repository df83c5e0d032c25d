"""Attachments that the reference plugins made (containernetworking/plugins): found by their names, and released.

Plugins use `reference.links`, `reference.rules` and `reference.nft_rules`, which are imported when one of them is used:
an ADD and a DEL with a record need none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from podwire.linux.nft.chains import KernelChains
from podwire.linux.nft.iptables import tables_with

if TYPE_CHECKING:
    from podwire.cniplugins.reference import links, nft_rules, rules

__all__ = ["links", "maps_ports", "nft_rules", "rules"]
_DNAT = "CNI-HOSTPORT-DNAT"
"""The iptables chain that leads to the host ports of all pods."""
_HOST_PORTS = "cni_hostport"
"""The nft table of host ports."""


def maps_ports(chains: KernelChains) -> bool:
    """Whether the portmap plugin may have rules on this host."""
    native = any(chains.exists(family, _HOST_PORTS, "hostports") for family in ("ip", "ip6"))
    return native or bool(tables_with(chains, "nat", _DNAT))


def __getattr__(name: str) -> Any:
    if name in ("links", "nft_rules", "rules"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(name)
