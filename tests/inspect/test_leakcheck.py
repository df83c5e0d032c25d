import asyncio
import contextlib
import socket
import subprocess
from ipaddress import ip_address, ip_interface, ip_network
from types import SimpleNamespace

import pytest

from podwire.cluster.runtime import Options
from podwire.cluster.up import state
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.state import NodeRecord, State
from podwire.cniplugins import nat
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.tags import shown_id
from podwire.durable.locks import lock_file
from podwire.inspect import cluster_leftovers, leftovers
from podwire.inspect.leakcheck import Leftover, lasting, leaks, owner_of_element, owner_of_link, table
from podwire.inspect.leftovers import find_resources, foreign_owners
from podwire.linux import syscalls
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.table import KernelElements, KernelRuleset
from podwire.linux.proc.namespaces import in_thread
from podwire.linux.values import Ifb, Veth
from podwire.protocols.cni.caller import VARIABLE as CALLER
from podwire.protocols.cni.caller import Caller
from podwire.protocols.cri import cri_pb2 as pb
from podwire.proxy.announced_addresses import AnnouncedAddresses
from podwire.runtime.records import SandboxRecord, open_records
from podwire.runtime.sandboxes.kernel import PREFIX as NETNS_PREFIX

KNOWN = Leftover("netns", "/run/netns/podwire-a", "a")
LOST = Leftover("mount", "/run/podwire/shm/b", "b")


def test_resources_without_an_owner_are_leftovers():
    assert leaks([KNOWN, LOST, LOST], {"a"}) == [LOST]


def test_resources_of_only_one_look_are_not_leftovers():
    assert lasting([KNOWN, LOST], [LOST]) == [LOST]


@pytest.mark.parametrize(
    ("alias", "owner"),
    [
        pytest.param("podwire:0123 net/abc/eth0", "abc", id="a pod's"),
        pytest.param("podwire", None, id="the bridge's, which all pods share"),
        pytest.param("uplink to net/abc/eth0", None, id="somebody else's"),
        pytest.param("", None, id="none"),
    ],
)
def test_links_are_known_by_their_alias(alias, owner):
    assert owner_of_link(alias) == owner


@pytest.mark.parametrize(("comment", "owner"), [("0123 abc eth0", "abc"), ("", None), ("note", None)])
def test_nft_elements_are_known_by_their_comment(comment, owner):
    assert owner_of_element(comment) == owner


def test_the_table_has_a_column_for_each():
    assert table([LOST]).splitlines() == [
        "KIND    NAME                 OWNER",
        "mount   /run/podwire/shm/b   b",
    ]


def test_files_of_plugins_are_resources_of_their_pod(tmp_path):
    record = tmp_path / "var/lib/podwire/cni/attachments/bridge/net@lost@eth0"
    lease = tmp_path / "var/lib/podwire/cni/networks/net/@lost@eth0"
    for item in (record, lease):
        item.parent.mkdir(parents=True)
    record.touch()
    lease.symlink_to("10.1.0.5")
    traces = find_resources(Options(socket=tmp_path / "cri.sock", prefix=tmp_path))
    assert {trace for trace in traces if trace.owner == "lost"} == {
        Leftover("CNI record", str(record), "lost"),
        Leftover("lease", str(lease), "lost"),
    }


def owners_in_a_network_with_a_pod_of_another_runtime(layout):
    def look():
        syscalls.unshare(syscalls.NEWNET)
        with KernelNetwork() as network:
            network.links.add(Veth("theirs", "peer", alias="podwire:0123 net/theirs/eth0"))
        return {
            resource.owner for resource in cluster_leftovers.find_resources(layout, SlotClaims(layout.prefix / "slots"))
        }

    return in_thread(look)


def test_pods_of_other_runtimes_are_not_leftovers_of_a_removed_cluster(tmp_path):
    assert "theirs" not in owners_in_a_network_with_a_pod_of_another_runtime(Layout(tmp_path))


def test_nodes_with_own_namespaces_have_no_leftovers_in_the_network_of_the_host(tmp_path):
    layout = Layout(tmp_path)
    (layout.state / "runtime").mkdir(parents=True)
    state.save(layout.record, State(slot=1, nodes=(NodeRecord(name="node-1", number=1, own=True),)))
    assert "theirs" not in owners_in_a_network_with_a_pod_of_another_runtime(layout)


def test_a_runtime_that_runs_alone_has_its_leftovers_in_the_network_of_the_host(tmp_path):
    (tmp_path / "var/lib/podwire/runtime").mkdir(parents=True)
    assert "theirs" in owners_in_a_network_with_a_pod_of_another_runtime(Layout(tmp_path))


def test_a_living_pod_of_another_runtime_is_a_known_owner(tmp_path, monkeypatch):
    entries = [SimpleNamespace(container_id=id_, alive=id_ != "gone") for id_ in ("theirs", "ours", "gone")]
    monkeypatch.setattr(leftovers, "attached", lambda _directory: entries)
    (tmp_path / "run/netns").mkdir(parents=True)
    (tmp_path / f"run/netns/{NETNS_PREFIX}ours").touch()
    assert foreign_owners(Options(socket=tmp_path / "cri.sock", prefix=tmp_path)) == {"theirs"}


def on_a_host(work):
    def run():
        syscalls.unshare(syscalls.NEWNET)
        return work()

    return in_thread(run)


def test_chains_of_a_subnet_without_pods_are_leftovers(tmp_path):
    def look():
        KernelRuleset().apply(nat.ruleset([ip_network("10.88.0.0/24")]))
        return find_resources(Options(socket=tmp_path / "cri.sock", prefix=tmp_path))

    names = {"masquerade-10.88.0.0-24", "hairpin-10.88.0.0-24"}
    assert {resource for resource in on_a_host(look) if resource.kind == "nft chain"} == {
        Leftover("nft chain", name, "") for name in names
    }


@pytest.mark.parametrize("ours", [True, False], ids=["of this prefix", "of another prefix"])
def test_plugin_processes_that_run_on_are_leftovers_of_their_prefix(tmp_path, ours):
    options = Options(socket=tmp_path / "cri.sock", prefix=tmp_path)
    (options.state / "cni").mkdir(parents=True)
    state = (options.state / "cni").stat()
    caller = Caller(1, 1, 1, f"{state.st_dev}-{state.st_ino}" if ours else "1-2")
    environment = {CALLER: caller.encode(), "CNI_CONTAINERID": "lost", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(["sleep", "60"], env=environment) as plugin:
        try:
            found = [resource for resource in find_resources(options, network=False) if resource.kind == "CNI plugin"]
        finally:
            plugin.kill()
    assert found == ([Leftover("CNI plugin", str(plugin.pid), "lost")] if ours else [])


def test_leftovers_are_found_by_tags_when_all_records_are_lost(tmp_path):
    """A veth, an ifb and an element of an attachment of which no file is left."""

    def look():
        record = Record("net", "lost", "eth0", "0123456789abcdef01234567")
        with KernelNetwork() as network:
            network.links.add(Veth("veth1", "peer1", alias=record.alias))
            network.links.add(Ifb("bwp1", alias=record.alias))
        KernelRuleset().apply(nat.ruleset([ip_network("10.88.0.0/24")]))
        table = KernelElements()
        table.add(*nat.jump(nat.MASQUERADE, ip_interface("10.88.0.2/24"), record.comment))
        table.close()
        return find_resources(Options(socket=tmp_path / "cri.sock", prefix=tmp_path))

    assert {(resource.kind, resource.name) for resource in on_a_host(look) if resource.owner == "lost"} == {
        ("link", "veth1"),
        ("link", "bwp1"),
        ("nft element", "0123456789abcdef01234567 lost eth0"),
    }


def test_owner_tags_of_long_ids_are_known_by_their_short_form(tmp_path, monkeypatch):
    entries = [SimpleNamespace(container_id="x" * 100, alive=True)]
    monkeypatch.setattr(leftovers, "attached", lambda _directory: entries)
    assert foreign_owners(Options(socket=tmp_path / "cri.sock", prefix=tmp_path)) == {"x" * 100, shown_id("x" * 100)}


def test_files_of_a_killed_helper_are_leftovers_and_those_of_a_living_one_are_not(tmp_path):
    options = Options(socket=tmp_path / "cri.sock", prefix=tmp_path)
    helpers = options.run / "podwire/cni-helpers"
    helpers.mkdir(parents=True)
    (helpers / "1-dead.lock").touch()
    with lock_file(helpers / "2-alive.lock"):
        found = [resource for resource in find_resources(options, network=False) if resource.kind == "CNI helper"]
    assert found == [Leftover("CNI helper", str(helpers / "1-dead.lock"), "")]


def test_sockets_on_which_nobody_listens_are_leftovers(tmp_path):
    layout = Layout(tmp_path)
    directory = tmp_path / "var/lib/kubelet/plugins_registry"
    for item in (layout.run / "cni", directory, layout.run / "shm"):
        item.mkdir(parents=True)
    paths = [
        layout.runtime_socket,
        layout.run / "cni/cni.sock",
        directory / "driver.sock",
        layout.run / "shm/of-a-pod.sock",
    ]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(layout.run / "listening.sock"))
        listener.listen()
        for path in paths:
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(path))
        found = cluster_leftovers.find_resources(layout, SlotClaims(tmp_path / "slots"))
    assert {resource.name for resource in found if resource.kind == "socket"} == {str(path) for path in paths[:3]}
    assert not any(resource.kind == "socket" for resource in leaks(found, {cluster_leftovers.OWNER}))


def test_sandboxes_name_their_pods(tmp_path):
    options = Options(socket=tmp_path / "cri.sock", prefix=tmp_path)
    config = pb.PodSandboxConfig()
    config.metadata.name, config.metadata.namespace, config.metadata.uid = "web", "shop", "1234"
    record = SandboxRecord(id="a", state="ready", config=config.SerializeToString(), created_at=1, boot_id="b")
    open_records(options.state / "runtime/sandboxes", SandboxRecord).put("a", record)
    assert leftovers.sandbox_pods(options) == {"a": leftovers.SandboxPod("1234", "shop/web")}
    assert asyncio.run(cluster_leftovers.find_without_object(Layout(tmp_path / "other"))) == []


def test_addresses_of_load_balancers_without_a_service_are_leftovers(tmp_path):
    """Only what the service proxy lent is an address of a load balancer."""
    layout, announced = Layout(tmp_path), []
    (layout.state / "runtime").mkdir(parents=True)

    def look():
        syscalls.unshare(syscalls.NEWNET)
        with KernelNetwork() as network:
            network.links.add(Veth("near", "far", up=True))
            network.addresses.add(network.links.get("near").ifindex, ip_interface("10.9.0.1/24"))
        with contextlib.closing(AnnouncedAddresses()) as addresses:
            for number in (50, 51):
                assert addresses.extend(ip_address(f"10.9.0.{number}"), 60)
        announced.extend(cluster_leftovers.announced(layout))

    in_thread(look)
    assert sorted(announced) == ["10.9.0.50", "10.9.0.51"]
    service = {"status": {"loadBalancer": {"ingress": [{"ip": "10.9.0.50"}, {"hostname": "a"}]}}}
    assert cluster_leftovers.without_object({}, announced, [], [service, {}]) == [
        Leftover("load-balancer address", "10.9.0.51", cluster_leftovers.OWNER)
    ]


def test_sandboxes_without_a_pod_are_leftovers():
    sandboxes = {uid: leftovers.SandboxPod(uid, f"shop/{uid}") for uid in ("gone", "pod", "static")}
    pods = [
        {"metadata": {"uid": "pod"}},
        {"metadata": {"uid": "mirror", "annotations": {cluster_leftovers.MIRROR: "static"}}},
    ]
    assert cluster_leftovers.without_object(sandboxes, (), pods, ()) == [Leftover("sandbox", "shop/gone", "gone")]
