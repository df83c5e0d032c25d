"""Our nft tables on a host: which sets there can be, and the end of a table that nobody uses any more."""

from collections.abc import Iterable

from podwire.cniplugins import nat
from podwire.cniplugins.bridge.plugin import plugin as bridge
from podwire.cniplugins.bridge.plugin import spoofing
from podwire.cniplugins.firewall.plugin import plugin as firewall
from podwire.cniplugins.portmap.plugin import plugin as portmap
from podwire.linux.nft.table import TABLE, KernelElements, KernelRuleset

SETS: dict[str, tuple[str, ...]] = {
    "inet": (*bridge.MASQUERADES, *portmap.SETS, *firewall.SETS),
    "bridge": (*spoofing.SETS, *firewall.ISOLATED_SETS),
}
"""By family: those in which a pod's elements are."""


def remove_unused() -> None:
    """The tables of this namespace in which no pod has an element. Who adds one later makes its table again."""
    elements = KernelElements()
    try:
        unused = [family for family, sets in SETS.items() if not _is_used(elements.of(family), sets)]
    finally:
        elements.close()
    for family in unused:
        KernelRuleset().delete_table(TABLE, family)


def _is_used(table: KernelElements, sets: Iterable[str]) -> bool:
    """Each set is asked by itself: which there are depends on which plugins were here."""
    return any(any(nat.marked((each,), lambda _comment: True, table).values()) for each in sets)
