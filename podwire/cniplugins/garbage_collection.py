"""GC: what belongs to no valid attachment of a network is given back.

1. Records tell, as for DEL.  2. Marks tell of what has lost its record: links and nft elements whose tokens end as
those of this network do, and of which no plugin has a record.  3. The IPAM is told the same. Each whatever became of
the others.

What somebody is adding meanwhile is spared, its addresses, too: a record comes before its addresses, and whoever has a
record when the IPAM is told keeps them.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from podwire.cniplugins import ipam_delegate as delegate
from podwire.cniplugins import nat
from podwire.cniplugins.attachments import LONGEST_ALIAS, MARK, Attachments, Record, as_del, household
from podwire.cniplugins.netfilter import opened
from podwire.cniplugins.skeleton import Call, all_of
from podwire.linux import errors as linux
from podwire.linux.net.deferred_deletion import delete_link
from podwire.linux.net.network import KernelNetwork
from podwire.protocols.cni.config import Valid

_SHOWN = 64  # of a container id, in a mark


def collect(
    call: Call,
    valid: Valid,
    attachments: Attachments,
    release: Callable[[Record, Call], None],
    *,
    sets: Collection[str] = (),
    bridge_sets: Collection[str] = (),
    links: bool = False,
) -> None:
    """For a plugin with these records, which puts elements into these sets and maybe makes links on the host.

    `bridge_sets` are those of our table in nft's family of bridges.

    `release` is handed a record and the DEL that it means.
    """
    dead: set[tuple[str, str]] = set()
    all_of(
        lambda: attachments.collect(valid, lambda record: release(record, as_del(record, call)), dead),
        *([lambda: _remove_links(call, valid, attachments)] if links else []),
        *([lambda: _remove_elements(call, valid, attachments, tuple(sets), "inet")] if sets else []),
        *([lambda: _remove_elements(call, valid, attachments, tuple(bridge_sets), "bridge")] if bridge_sets else []),
        lambda: delegate.gc(call._replace(others=lambda: attachments.owners() - dead), valid),
    )


def is_of(text: str, end: str) -> bool:
    """Whether a link's alias, or an element's comment, is of a network; see `household`."""
    return text.removeprefix(MARK).partition(" ")[0].endswith(end)


def is_lost(text: str, end: str, tokens: set[str], valid: Valid) -> bool:
    """Whether a mark is of this network, of nobody's record, and of no valid attachment."""
    token, _, owner = text.removeprefix(MARK).partition(" ")
    id_, _, ifname = owner.replace("/", " ").rpartition(" ")
    id_ = id_.rpartition(" ")[2]
    if not is_of(text, end) or token in tokens or not id_ or len(text) >= LONGEST_ALIAS:
        return False  # what was cut off could be anybody's
    return not any((each[:_SHOWN], its) == (id_[:_SHOWN], ifname) for each, its in valid)


def _remove_links(call: Call, valid: Valid, attachments: Attachments) -> None:
    """Links are looked at before records: whoever adds one has written a record by then."""
    end = household(call.config)
    with KernelNetwork() as host:
        ours = [each for each in host.links.list() if is_of(each.alias, end)]
    tokens = attachments.tokens() if ours else set()
    lost = [each for each in ours if is_lost(each.alias, end, tokens, valid)]
    all_of(*(partial(_delete, each.ifindex, call) for each in lost))


def _delete(ifindex: int, call: Call) -> None:
    with suppress(linux.NoSuchLink):
        delete_link(ifindex, call.later)


def _remove_elements(call: Call, valid: Valid, attachments: Attachments, sets: tuple[str, ...], family: str) -> None:
    end = household(call.config)
    with opened(call) as netfilter:
        table = netfilter.elements.of(family)
        marked = nat.marked(sets, lambda comment: is_of(comment, end), table)
        comments = {each.comment for found in marked.values() for each in found}
        tokens = attachments.tokens() if comments else set()
        lost = {each for each in comments if is_lost(each, end, tokens, valid)}
        if lost:
            nat.remove(table, sets, lost.__contains__)
