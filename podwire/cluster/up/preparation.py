"""Prepares everything that must exist before the first component runs. Every step is idempotent, also after a crash."""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from podwire.apiserver.identity.pki import CERTIFICATE_LIFETIME
from podwire.cluster.hardware.profile import Profile
from podwire.cluster.join import machine_network
from podwire.cluster.join.settings import AUTO
from podwire.cluster.up import conflist, host_network, node_mounts, node_routes, placement, state
from podwire.cluster.up.layout import FIRST, BadPrefix, Layout, check_directories
from podwire.cluster.up.node_building import build_node
from podwire.cluster.up.nodes import Node, objection, planned
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.slots import Network, Slot, collisions
from podwire.cluster.up.state import NodeRecord, State
from podwire.controllers.registry import ALL
from podwire.linux.errors import NoSuchLink, UntrustedPath
from podwire.linux.fs.trust import check_files, make_directory
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.table import KernelRuleset
from podwire.runtime.cni import CheckSettings
from podwire.runtime.cni.check import DEFAULT_SETTINGS
from podwire.scheduler.profiles import Configuration
from podwire.store import BadUrl, check_url

if TYPE_CHECKING:
    from podwire.cluster.up.child import Component
    from podwire.dradriver.config import Config as NetworkDriver


class Refused(Exception):
    """The request cannot be fulfilled; says what would help."""


def no_components(_prepared: "Prepared") -> "Sequence[Component]":
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """Options of the command line; None means what was decided before, or the default."""

    runtime: str | None = None
    store: str | None = None
    nodes: int | None = None
    hardware: Profile | None = None
    checking: CheckSettings = DEFAULT_SETTINGS
    """CNI checks by our runtime. Not saved: each start may choose."""
    otlp: str = ""
    """URL of an OpenTelemetry collector; not saved either."""
    network_driver: "NetworkDriver | None" = None
    """Configuration of a network driver on each node; None for no driver. Not saved either."""
    encryption_config: Path | None = None
    """An EncryptionConfiguration for the API server. Not saved either: the store says which key is missing."""
    certificate_lifetime: timedelta = CERTIFICATE_LIFETIME
    """Not saved either: a start issues all certificates anew."""
    controllers: frozenset[str] = ALL
    """The controllers that run. Not saved either."""
    network_policy: bool = True
    """Whether NetworkPolicies are enforced. Not saved either."""
    balancer_pool: tuple[Network, ...] | None = None
    """Addresses for Services of type LoadBalancer; empty for none, None for the default. Not saved either."""
    scheduling: Configuration = field(default_factory=Configuration)
    """Settings of the scheduler. Not saved either."""
    manifests: Path | None = None
    """The directory of static pods, without links in its path; None for none. Not saved either."""
    advertise: str | None = None
    """The address of this machine at which others join; empty: none can."""
    machine_network: str | None = None
    """How packets go to pods of other machines."""
    additional: "Callable[[Prepared], Sequence[Component]]" = no_components
    """Components of layers above, such as the live page. Not saved either."""
    owner: tuple[int, int] | None = None
    """User and group who may read the kubeconfig; None for whom it was before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A cluster whose components can be started."""

    layout: Layout
    state: State
    ipv6: bool
    owners: tuple[str, ...] = ()
    """Why the node is not on the host itself."""
    host_ips: tuple[str, ...] = ()
    """Addresses of a node on the host itself."""
    checking: CheckSettings = DEFAULT_SETTINGS
    otlp: str = ""
    network_driver: "NetworkDriver | None" = None
    encryption_config: Path | None = None
    certificate_lifetime: timedelta = CERTIFICATE_LIFETIME
    controllers: frozenset[str] = ALL
    network_policy: bool = True
    wanted_pool: tuple[Network, ...] | None = None
    scheduling: Configuration = field(default_factory=Configuration)
    manifests: Path | None = None
    additional: "Callable[[Prepared], Sequence[Component]]" = no_components

    @property
    def balancer_pool(self) -> tuple[Network, ...]:
        """Addresses for Services of type LoadBalancer. A node on the host itself has those that are given: the host's
        network belongs to others."""
        if self.wanted_pool is not None:
            return self.wanted_pool
        return self.slot.balancer_pool(ipv6=self.ipv6) if self.own else ()

    @property
    def slot(self) -> Slot:
        return Slot(self.state.slot)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(
            Node(layout=self.layout, slot=self.slot, record=node, ipv6=self.ipv6, host_ips=self.host_ips)
            for node in self.state.nodes
        )

    @property
    def own(self) -> bool:
        """Whether nodes have their own namespaces: all have, or the only one has not."""
        return self.state.nodes[0].own


def prepare(layout: Layout, wanted: UpOptions, claims: SlotClaims, made: tuple[str, ...]) -> Prepared:
    """Prepares a cluster; `made` are the directories that did not exist.

    1. Directories.  2. Decide and claim, or load what was decided before.  3. Forwarding.  4. Namespaces, bridge, veth
    pairs. 5. Simulated hardware.  6. CNI plugins and the default network.
    """
    check_standard(layout)
    known = state.load(layout.record)
    check_same(known, wanted)
    _check_runtime(wanted.runtime or (known.runtime if known else "podwire"))
    ipv6 = host_network.has_ipv6()
    owners = () if known else tuple(_owners(layout, wanted))
    made = known.made if known else made
    for path in (layout.state, layout.run, layout.logs, layout.component_tags):
        make_directory(path, no_links_below=layout.no_links_below)
    decided = _decided(layout, known, wanted, owners, made, claims)
    prepared = Prepared(
        layout=layout,
        state=decided,
        ipv6=ipv6,
        owners=owners,
        host_ips=host_network.host_ips(),
        checking=wanted.checking,
        otlp=wanted.otlp,
        network_driver=wanted.network_driver,
        encryption_config=wanted.encryption_config,
        certificate_lifetime=wanted.certificate_lifetime,
        controllers=wanted.controllers,
        network_policy=wanted.network_policy and decided.runtime == "podwire",
        wanted_pool=wanted.balancer_pool,
        scheduling=wanted.scheduling,
        manifests=wanted.manifests,
        additional=wanted.additional,
    )
    closed = host_network.to_forward(ipv6=ipv6)
    claims.note_forwarding(closed)  # recorded first: a crash in between leaves nothing on
    host_network.forward(closed)
    _place(prepared)
    _network(prepared)
    return prepared


def check_standard(layout: Layout) -> None:
    """Checks the directories of all nodes, as far as they exist, and the programs that runtimes execute. BadPrefix."""
    for below in {layout.prefix, *(layout.standard(node) for node in layout.nodes())}:
        check_directories(layout, (below / path for path in (*node_mounts.STANDARD, *node_mounts.OWN)))
        try:
            for path in ("opt/cni/bin", "opt/nri/plugins"):
                check_files(below / path)
        except UntrustedPath as error:
            raise BadPrefix(str(error)) from error


def check_same(known: State | None, wanted: UpOptions) -> None:
    """Checks that a cluster can be changed as wanted. Raises Refused."""
    if wanted.store is not None:
        try:
            check_url(wanted.store)
        except BadUrl as error:
            raise Refused(f"--store {error}") from error
    if reason := objection(known.nodes if known else (), wanted.nodes):
        raise Refused(f"--nodes {wanted.nodes}: {reason}")
    check_machine_network(wanted)
    if known is None:
        return
    if known.joined:
        raise Refused(f"this machine is a node of the cluster at {known.joined}; `podwire leave` it first")
    for name, before, now in (
        ("--runtime", known.runtime, wanted.runtime),
        ("--store", known.store, wanted.store),
    ):
        if now is not None and now != before:
            shown = before or "the embedded one"
            raise Refused(f"{name} {now}: this cluster was made with {shown}; `podwire down` it first")
    if wanted.hardware is not None and wanted.hardware != known.hardware:
        shown = "other hardware" if known.hardware else "none"
        raise Refused(f"--hardware: this cluster was made with {shown}; `podwire down` it first")


def check_machine_network(wanted: UpOptions) -> None:
    """Raises Refused: the address must be one of this machine, and the kernel must have what the network needs."""
    if wanted.advertise and wanted.advertise not in machine_addresses():
        raise Refused(f"--advertise-address {wanted.advertise}: this machine does not have the address")
    try:
        machine_network.check_backend(wanted.machine_network or AUTO)
    except machine_network.NotSupported as error:
        raise Refused(f"--machine-network: {error}") from error


def machine_addresses() -> set[str]:
    with KernelNetwork() as network:
        return {str(row.interface.ip) for link in network.links.list() for row in network.addresses.list(link.ifindex)}


def _check_runtime(runtime: str) -> None:
    """A foreign runtime must be running; it is not ours to start."""
    if runtime != "podwire" and not placement.answers(Path(runtime.removeprefix("unix://"))):
        raise Refused(f"--runtime {runtime}: no runtime listens there; start it first, see docs/containerd.md")


def check_manifests(layout: Layout, directory: Path | None) -> None:
    """Checks that the directory of static pods exists where nodes see it. Raises Refused."""
    if directory is None:
        return
    if not directory.is_dir():
        raise Refused(f"--pod-manifest-path {directory}: is not a directory")
    if node_mounts.hides(layout, directory):
        raise Refused(f"--pod-manifest-path {directory}: nodes have a directory of their own there; choose another one")


def _owners(layout: Layout, wanted: UpOptions) -> list[str]:
    """Returns who keeps the node from running on the host itself."""
    if wanted.runtime not in (None, "podwire"):
        if not layout.is_default:
            raise Refused("--runtime with a socket needs the default prefix: a foreign runtime is on the host itself")
        if wanted.hardware is not None:
            raise Refused("--hardware needs a node in namespaces of its own; a foreign runtime is on the host itself")
        if (wanted.nodes or 1) > 1:
            raise Refused(f"--nodes {wanted.nodes}: a foreign runtime is on the host itself, and serves one node")
        return []
    return placement.owners() if layout.is_default else []


def missing(layout: Layout) -> tuple[str, ...]:
    """Returns the directories that will be created, the deepest first, so that they can be removed in this order."""
    paths = [layout.state, layout.run, layout.logs]
    paths += [layout.prefix / path for path in ("etc/cni/net.d", "opt/cni/bin", "run/netns", "run/nri", "var/lib/cni")]
    paths += [layout.prefix / path for path in ("etc/cdi", "etc/nri/conf.d", "etc/podwire", "opt/nri/plugins")]
    paths += [layout.prefix / "run/cdi"]
    paths += [layout.prefix / path for path in ("var/lib/kubelet", "var/log/pods", "var/log/containers")]
    directories = {str(above) for path in paths for above in (path, *path.parents) if not above.exists()}
    return tuple(sorted(directories, key=lambda path: (-path.count("/"), path)))


def _decided(
    layout: Layout,
    known: State | None,
    wanted: UpOptions,
    owners: tuple[str, ...],
    made: tuple[str, ...],
    claims: SlotClaims,
) -> State:
    """Returns the state to save: claimed and saved in one step, under the lock of the slots."""
    own = bool(owners or wanted.hardware or (wanted.nodes or 1) > 1) or not layout.is_default
    first = NodeRecord(name=FIRST if own else os.uname().nodename.lower(), number=1, own=own)
    nodes = planned(known.nodes if known else (), wanted.nodes, first)
    decided: list[State] = []

    def keep(slot: Slot) -> None:
        fresh = State(
            slot=slot.number,
            nodes=nodes,
            runtime=wanted.runtime or "podwire",
            store=wanted.store or "",
            made=made,
            hardware=wanted.hardware,
            owner=wanted.owner,
        )
        before = known or fresh
        changed = msgspec.structs.replace(
            before,
            nodes=nodes,
            owner=wanted.owner or before.owner,
            advertise=before.advertise if wanted.advertise is None else wanted.advertise,
            machine_network=wanted.machine_network or before.machine_network,
        )
        decided.append(changed)
        if decided[0] != known:
            state.save(layout.record, decided[0])

    claims.claim(layout, known.slot if known else None, _trouble if known is None else _port_trouble, keep)
    return decided[0]


def _port_trouble(slot: Slot) -> str:
    """Returns an objection to a slot that the cluster had before; routes of its own pods may still exist."""
    return "" if placement.port_is_free(slot.api_port) else f"port {slot.api_port} of 127.0.0.1 is in use"


def _trouble(slot: Slot) -> str:
    """Returns an objection to a slot."""
    if reason := _port_trouble(slot):
        return reason
    if routes := collisions(slot, host_network.routes_of_host(slot)):
        return f"the host has a route to {routes[0]}"
    with KernelNetwork() as network, contextlib.suppress(NoSuchLink):
        if not network.links.get(slot.bridge).alias.startswith(host_network.TAG_PREFIX):
            return f"a link is named {slot.bridge}"
    return ""


def _place(prepared: Prepared) -> None:
    if not prepared.own:
        if prepared.state.advertise:
            slot, ipv6, tag = prepared.slot, prepared.ipv6, host_network.owner_tag(prepared.layout)
            inside = node_routes.inside_networks(slot, (), ipv6=ipv6, joinable=True)
            KernelRuleset().apply(node_routes.ruleset(slot.pod_ranges(1, ipv6=ipv6), inside, tag))
        return
    host_network.connect_host(prepared.layout, prepared.slot, ipv6=prepared.ipv6)
    for node in prepared.state.nodes:
        build_node(prepared.layout, prepared.state, node, ipv6=prepared.ipv6)


def _network(prepared: Prepared) -> None:
    conflist.put_plugins(prepared.layout.state / "cni/bin")
    for node in prepared.nodes:
        below = prepared.layout.standard(node.name) if node.record.own else prepared.layout.prefix
        make_directory(below / "etc/cni/net.d", no_links_below=prepared.layout.no_links_below)
        conflist.write(below / "etc/cni/net.d", node.pod_ranges)
        for path in ("var/log/pods", "var/log/containers"):
            make_directory(below / path, no_links_below=prepared.layout.no_links_below)
        make_directory(node.home.state / "volumes", 0o700, no_links_below=prepared.layout.no_links_below)
