"""The nft tables of podwire's plugins: their sets, and the removal of tables without elements."""

from collections.abc import Iterable

from podwire.cniplugins import nat
from podwire.cniplugins.bridge import spoofing
from podwire.cniplugins.firewall import plugin as firewall
from podwire.cniplugins.portmap import plugin as portmap
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.port_guard import GROUP
from podwire.linux.nft.table import TABLE, KernelElements, KernelRuleset

SETS: dict[str, tuple[str, ...]] = {
    "inet": (*nat.MASQUERADE_SETS, *portmap.SETS, *firewall.SETS),
    "bridge": (*spoofing.SETS, *firewall.ISOLATED_SETS),
}
"""Sets with elements of pods, by family."""


def remove_unused() -> None:
    """Removes the tables of this namespace without elements of pods. A later ADD makes its table again."""
    elements = KernelElements()
    try:
        unused = [family for family, sets in SETS.items() if not _is_used(elements.of(family), sets)]
        if _has_guarded_ports():
            unused = [family for family in unused if family != "bridge"]
    finally:
        elements.close()
    for family in unused:
        KernelRuleset().delete_table(TABLE, family)


def _has_guarded_ports() -> bool:
    with KernelNetwork() as network:
        return any(link.group == GROUP for link in network.links.list())


def _is_used(table: KernelElements, sets: Iterable[str]) -> bool:
    """Lists each set by itself: which sets exist depends on the plugins that were used."""
    return any(any(nat.list_tagged((name,), lambda _tag: True, table).values()) for name in sets)
