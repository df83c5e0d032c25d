"""Prepares a machine that joins: trust, certificates, directories. Every step is idempotent, also after a crash."""

import asyncio
import ipaddress
import os
import pickle
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from podwire.cluster.join import machine_network, settings
from podwire.cluster.join.certificates import NotSigned
from podwire.cluster.join.discovery import NotTrusted, discover
from podwire.cluster.join.node_identity import NodeIdentity
from podwire.cluster.join.settings import BadSettings, ClusterSettings
from podwire.cluster.up import conflist, host_network, placement, state
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.preparation import Refused, check_standard
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.state import NodeRecord, State
from podwire.durable.files import write_durably
from podwire.linux.fs.trust import make_directory
from podwire.linux.net.network import KernelNetwork
from podwire.protocols.k8sapi.bootstrap_tokens import Token
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError

T = TypeVar("T")

FAILURES = (NotTrusted, NotSigned, ApiError, BadKubeconfig, BadSettings, ClientError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """Options of the command line."""

    server: str = ""
    """Empty: that of the cluster which this machine has joined."""
    token: Token | None = None
    hashes: tuple[str, ...] = ()
    node: str = ""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedNode:
    """A node whose components can be started."""

    layout: Layout
    node: str
    server: str
    addresses: tuple[str, ...]
    """Chosen by the operator; empty: those of the machine, which may change."""
    settings: ClusterSettings

    @property
    def identity(self) -> NodeIdentity:
        return NodeIdentity(self.layout, self.node)


def prepare(layout: Layout, wanted: JoinOptions, claims: SlotClaims, made: tuple[str, ...]) -> PreparedNode:
    """Raises Refused, BadPrefix.

    1. Check that the machine is free.  2. Record, so that `podwire leave` finds what a crash leaves.  3. Trust the
    server, and get certificates.  4. Directories, forwarding, and CNI plugins.
    """
    check_standard(layout)
    known = state.load(layout.record)
    server, node = _check(layout, known, wanted)
    for path in (layout.state, layout.run, layout.logs, layout.component_tags):
        make_directory(path, no_links_below=layout.no_links_below)
    record = NodeRecord(name=node, number=1, own=False)
    decided = known or State(slot=0, nodes=(record,), made=made, joined=server)
    decided = msgspec.structs.replace(decided, node_ips=wanted.addresses or decided.node_ips)
    if decided != known:
        state.save(layout.record, decided)
    identity = NodeIdentity(layout, node)
    addresses = decided.node_ips or machine_addresses(server)
    cluster = _in_child(lambda: _credentials(identity, wanted, server, addresses))
    machine_network.check_backend(cluster.backend)
    closed = host_network.to_forward(ipv6=host_network.has_ipv6())
    claims.note_forwarding(closed)  # recorded first: a crash in between leaves nothing on
    host_network.forward(closed)
    conflist.put_plugins(layout.state / "cni/bin")
    for path in (layout.prefix / "etc/cni/net.d", layout.prefix / "var/log/pods", layout.prefix / "var/log/containers"):
        make_directory(path, no_links_below=layout.no_links_below)
    make_directory(layout.state / "volumes", 0o700, no_links_below=layout.no_links_below)
    return PreparedNode(layout=layout, node=node, server=server, addresses=decided.node_ips, settings=cluster)


def _check(layout: Layout, known: State | None, wanted: JoinOptions) -> tuple[str, str]:
    """Returns the server and the name of the node. Raises Refused."""
    if not layout.is_default:
        raise Refused(f"a machine joins as a whole, with the prefix /, and not below {layout.prefix}")
    if known is None:
        if not wanted.server or wanted.token is None:
            raise Refused("this machine has not joined a cluster; give the server and --token, see `podwire token`")
        if owners := placement.owners():
            raise Refused(f"this machine is in use: {', '.join(owners)}")
        return wanted.server, wanted.node or os.uname().nodename.lower()
    if not known.joined:
        raise Refused("this machine has a cluster of its own; `podwire down` it first")
    if wanted.server and wanted.server != known.joined:
        raise Refused(f"this machine is a node of the cluster at {known.joined}; `podwire leave` it first")
    if wanted.node and wanted.node != known.nodes[0].name:
        raise Refused(f"this machine joined as {known.nodes[0].name}; `podwire leave` first to change its name")
    return known.joined, known.nodes[0].name


async def _credentials(
    identity: NodeIdentity, wanted: JoinOptions, server: str, addresses: tuple[str, ...]
) -> ClusterSettings:
    """Gets certificates and settings. A node that has them starts without the server, too: its pods have to run."""
    stored = identity.layout.state / "cluster-settings.json"
    if not identity.is_valid():
        if wanted.token is None:
            raise NotTrusted("the certificate of this node has expired; join again with a new token")
        await identity.bootstrap(await discover(server, wanted.token, wanted.hashes))
    try:
        await identity.complete(addresses)
        cluster = await identity.settings()
    except FAILURES:
        if not stored.exists():
            raise
        return settings.from_data(msgspec.json.decode(stored.read_bytes()))
    write_durably(stored, msgspec.json.encode(settings.to_data(cluster)))
    return cluster


def machine_addresses(server: str) -> tuple[str, ...]:
    """Returns the addresses of this machine by which the cluster reaches it: on the segment of the API server, or on
    the link of the default route."""
    try:
        target = ipaddress.ip_address(urlsplit(server).hostname or "")
    except ValueError:  # a name
        return host_network.host_ips()
    with KernelNetwork() as network:
        for link in network.links.list():
            if link.name.startswith(machine_network.OWN_LINKS):
                continue
            rows = [row.interface for row in network.addresses.list(link.ifindex) if not row.interface.ip.is_link_local]
            near = [row for row in rows if row.version == target.version and target in row.network]
            if near:
                return (str(near[0].ip), *[str(row.ip) for row in rows if row.version != target.version][:1])
    return host_network.host_ips()


def _in_child(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a coroutine in a process of its own: this one will fork components, and must have no threads and no TLS."""
    reads, writes = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(reads)
        _answer(writes, work)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    result, error = pickle.loads(answer) if answer else (None, "was killed")  # noqa: S301 - written by our own child
    if error:
        raise Refused(f"cannot join: {error}")
    return cast("T", result)


def _answer(writes: int, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Never returns: the rest is for the parent."""
    answer: tuple[Any, str] = (None, "failed unexpectedly")
    try:
        answer = (asyncio.run(work()), "")
    except FAILURES as error:
        answer = (None, str(error) or type(error).__name__)
    except Exception as error:  # noqa: BLE001 - reported to the parent, whatever it is
        answer = (None, f"{type(error).__name__}: {error}")
    finally:
        with os.fdopen(writes, "wb") as pipe:
            pipe.write(pickle.dumps(answer))
        os._exit(0)
