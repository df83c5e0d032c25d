"""Looks for what `up` made on this host: by the marks that everything bears, never by podwire's own memory."""

import contextlib
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from podwire.cluster import traces
from podwire.cluster.leakcheck import Trace
from podwire.cluster.up import marks, views, wiring
from podwire.cluster.up.claims import Claims
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.nodespace import NodeSpace
from podwire.cluster.up.slots import TABLES
from podwire.linux.errors import LinuxError
from podwire.linux.fs.mounts import mounted
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc import processes

OWNER = "cluster"
"""Whose all of this is: the cluster that the record tells of."""

NFT_SECONDS = 10.0


def found(layout: Layout, claims: Claims) -> set[Trace]:
    """All that belongs to the cluster below a prefix, and all that its pods have, on the host and on its nodes."""
    seen = set(_own(layout, claims))
    for name in layout.nodes():
        seen |= traces.found(views.outside(layout, name))
    for space in _spaces(layout):
        seen |= space.inside(partial(traces.found, views.inside(layout, space.name)))
    return seen


def owners(layout: Layout) -> set[str]:
    """Sandboxes and containers that have a record, and the cluster itself if it has one."""
    known = {each for name in layout.nodes() for each in traces.owners(views.outside(layout, name))}
    return known | {OWNER} if layout.record.exists() else known


def _spaces(layout: Layout) -> list[NodeSpace]:
    names = [each.name for each in layout.pins.iterdir()] if layout.pins.is_dir() else []
    return [space for each in names if (space := NodeSpace(layout, each)).stands()]


def _own(layout: Layout, claims: Claims) -> Iterator[Trace]:
    yield from _namespaces(layout)
    yield from _links(layout)
    yield from _tables(layout)
    for number in claims.of(layout.prefix):
        yield Trace("slot", str(number), OWNER)
    for pid, name in marks.components(layout).items():
        yield Trace("component", f"{name} {pid}", OWNER)


def _namespaces(layout: Layout) -> Iterator[Trace]:
    for each in mounted():
        if Path(each.target).is_relative_to(layout.pins):
            yield Trace("node namespace" if each.kind == "nsfs" else "mount", each.target, OWNER)


def _links(layout: Layout) -> Iterator[Trace]:
    with contextlib.closing(KernelNetwork()) as network:
        for each in network.links.list():
            if each.alias == wiring.mark_of(layout):
                yield Trace("link", each.name, OWNER)


def _tables(layout: Layout) -> Iterator[Trace]:
    """The nft tables whose comment says that they are this cluster's; none where there is no nft."""
    mark = f'comment "{wiring.mark_of(layout)}"'
    for name in re.findall(rf"\b{TABLES}\d+\b", _nft("list", "tables", "inet")):
        if mark in _nft("list", "table", "inet", name):
            yield Trace("nft table", name, OWNER)


def _nft(*words: str) -> str:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    try:
        done = processes.run(("nft", *words), env=environment, deadline=NFT_SECONDS)
    except LinuxError:
        return ""
    return done.stdout.decode("utf-8", "replace")
