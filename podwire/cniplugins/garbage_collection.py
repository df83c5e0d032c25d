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

from podwire.cniplugins import ipam_delegate, nat, tags
from podwire.cniplugins.attachments import Attachments, Record, as_del, token_suffix
from podwire.cniplugins.netfilter import open_netfilter
from podwire.cniplugins.skeleton import Call, run_all
from podwire.linux import errors as linux
from podwire.linux.net.deferred_deletion import delete_link
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Link
from podwire.protocols.cni.config import Valid

_SHOWN = 64
"""Characters of a container id in tags of podwire 0.1.0."""


def collect(
    call: Call,
    valid: Valid,
    attachments: Attachments,
    release: Callable[[Record, Call], None],
    *,
    sets: Collection[str],
    bridge_sets: Collection[str],
    release_link: Callable[[Call, Link], None] | None,
) -> None:
    """Collects for one plugin: its records, its nft sets by family, and its links if it has any on the host.

    `release` is called with a record and the DEL that releases it, `release_link` with a link without a record.
    """
    dead: set[tuple[str, str]] = set()
    steps = [lambda: attachments.collect(call, valid, lambda record: release(record, as_del(record, call)), dead)]
    if release_link is not None:
        steps.append(partial(_release_links, call, valid, attachments, release_link))
    if sets:
        steps.append(partial(_remove_elements, call, valid, attachments, tuple(sets), "inet"))
    if bridge_sets:
        steps.append(partial(_remove_elements, call, valid, attachments, tuple(bridge_sets), "bridge"))
    run_all(
        *steps,
        lambda: ipam_delegate.gc(call._replace(also_valid=lambda: attachments.owners() - dead), valid),
    )


def is_of_network(tag: str, network: str) -> bool:
    """Whether a link's alias or an element's comment is of the network with this `token_suffix`."""
    parsed = tags.parse(tag)
    return parsed is not None and parsed.network == network


def is_orphaned(tag: str, network: str, tokens: set[str], valid: Valid) -> bool:
    """Whether a tag is of this network, of no record, and of no valid attachment."""
    parsed = tags.parse(tag)
    if parsed is None or parsed.network != network or parsed.token in tokens:
        return False
    owner = parsed.container, parsed.ifname
    return not any(owner in ((tags.shown_id(id_), name), (id_[:_SHOWN], name), (id_, name)) for id_, name in valid)


def _release_links(
    call: Call, valid: Valid, attachments: Attachments, release_link: Callable[[Call, Link], None]
) -> None:
    """Lists links before records: the record of a link that is being added exists by then."""
    suffix = token_suffix(call.config)
    with KernelNetwork() as host:
        ours = [link for link in host.links.list() if is_of_network(link.alias, suffix)]
    tokens = attachments.tokens() if ours else set()
    orphans = [link for link in ours if is_orphaned(link.alias, suffix, tokens, valid)]
    run_all(*(partial(release_link, call, link) for link in orphans))


def delete_orphan(call: Call, link: Link) -> None:
    """Deletes a link that a plugin made; a borrowed device is not deleted."""
    parsed = tags.parse(link.alias)
    if parsed is not None and not parsed.device:
        with suppress(linux.NoSuchLink):
            delete_link(link.ifindex, call.defer)


def _remove_elements(call: Call, valid: Valid, attachments: Attachments, sets: tuple[str, ...], family: str) -> None:
    suffix = token_suffix(call.config)
    with open_netfilter(call) as netfilter:
        table = netfilter.elements.of(family)
        elements = nat.list_tagged(sets, lambda tag: is_of_network(tag, suffix), table)
        comments = {element.comment for listed in elements.values() for element in listed}
        tokens = attachments.tokens() if comments else set()
        orphans = {tag for tag in comments if is_orphaned(tag, suffix, tokens, valid)}
        if orphans:
            nat.remove(table, sets, orphans.__contains__)
        if family == "inet":
            nat.delete_unused_chains(table)
