"""GC (CNI spec, section 3): releases what belongs to no valid attachment of a network.

1. By records: each record that is not of a valid attachment is released as DEL would.
2. By owner tags: links and nft elements of this network whose record is lost.
3. By the IPAM plugin, which gets the same list.

A failure of one does not stop the others. An ADD that runs at the same time is safe: a record is written before
anything is made or leased, and tags and leases are compared with the records that exist when they have been listed.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from podwire.cniplugins import ipam_delegate, nat
from podwire.cniplugins.attachments import LONGEST_ALIAS, TAG_PREFIX, Attachments, Record, as_del, token_suffix
from podwire.cniplugins.netfilter import open_netfilter
from podwire.cniplugins.skeleton import Call, run_all
from podwire.linux import errors as linux
from podwire.linux.net.deferred_deletion import delete_link
from podwire.linux.net.network import KernelNetwork
from podwire.protocols.cni.config import Valid

_SHOWN = 64
"""Characters of a container id in the tag of an nft element."""


def collect(
    call: Call,
    valid: Valid,
    attachments: Attachments,
    release: Callable[[Record, Call], None],
    *,
    sets: Collection[str],
    bridge_sets: Collection[str],
    links: bool,
) -> None:
    """Collects for one plugin: its records, its nft sets by family, and its links if it makes any on the host.

    `release` is called with a record and the DEL that releases it.
    """
    dead: set[tuple[str, str]] = set()
    steps = [lambda: attachments.collect(valid, lambda record: release(record, as_del(record, call)), dead)]
    if links:
        steps.append(partial(_remove_links, call, valid, attachments))
    if sets:
        steps.append(partial(_remove_elements, call, valid, attachments, tuple(sets), "inet"))
    if bridge_sets:
        steps.append(partial(_remove_elements, call, valid, attachments, tuple(bridge_sets), "bridge"))
    run_all(
        *steps,
        lambda: ipam_delegate.gc(call._replace(also_valid=lambda: attachments.owners() - dead), valid),
    )


def is_of_network(tag: str, suffix: str) -> bool:
    """Whether a link's alias or an element's comment is of the network with this `token_suffix`."""
    return tag.removeprefix(TAG_PREFIX).partition(" ")[0].endswith(suffix)


def is_orphaned(tag: str, suffix: str, tokens: set[str], valid: Valid) -> bool:
    """Whether a tag is of this network, of no record, and of no valid attachment."""
    token, _, owner = tag.removeprefix(TAG_PREFIX).partition(" ")
    container_id, _, ifname = owner.replace("/", " ").rpartition(" ")
    container_id = container_id.rpartition(" ")[2]
    if not is_of_network(tag, suffix) or token in tokens or not container_id or len(tag) >= LONGEST_ALIAS:
        return False  # the owner of a truncated tag is unknown
    return not any((id_[:_SHOWN], name) == (container_id[:_SHOWN], ifname) for id_, name in valid)


def _remove_links(call: Call, valid: Valid, attachments: Attachments) -> None:
    """Lists links before records: the record of a link that is being added exists by then."""
    suffix = token_suffix(call.config)
    with KernelNetwork() as host:
        ours = [link for link in host.links.list() if is_of_network(link.alias, suffix)]
    tokens = attachments.tokens() if ours else set()
    orphans = [link for link in ours if is_orphaned(link.alias, suffix, tokens, valid)]
    run_all(*(partial(_delete, link.ifindex, call) for link in orphans))


def _delete(ifindex: int, call: Call) -> None:
    with suppress(linux.NoSuchLink):
        delete_link(ifindex, call.defer)


def _remove_elements(call: Call, valid: Valid, attachments: Attachments, sets: tuple[str, ...], family: str) -> None:
    suffix = token_suffix(call.config)
    with open_netfilter(call) as netfilter:
        table = netfilter.elements.of(family)
        elements = nat.list_tagged(sets, lambda tag: is_of_network(tag, suffix), table)
        tags = {element.comment for listed in elements.values() for element in listed}
        tokens = attachments.tokens() if tags else set()
        orphans = {tag for tag in tags if is_orphaned(tag, suffix, tokens, valid)}
        if orphans:
            nat.remove(table, sets, orphans.__contains__)
