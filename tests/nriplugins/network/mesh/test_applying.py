"""Connections in real namespaces through a proxy that is a process of its own, with a uid of its own."""

import errno
import runpy
import socket
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

from podwire.linux.nft.tables import Chain, KernelTables, Table
from podwire.nriplugins.network import mesh
from podwire.nriplugins.network.mesh.ruleset import TABLE
from podwire.nriplugins.network.resources import Pod, Why

SCRIPT = Path(__file__).with_name("proxy.py")
original = runpy.run_path(str(SCRIPT))["original"]
PROXY = 1337
INBOUND, OUTBOUND = 15006, 15001
WEB = Pod("default", "web", labels={"app": "web"}, ips=(ip_address("10.1.0.5"), ip_address("fd01::5")))
BOTH = pytest.mark.parametrize("far", ["10.20.0.1", "fd20::1"], ids=["IPv4", "IPv6"])
SELF = pytest.mark.parametrize("own", ["10.1.0.5", "fd01::5"], ids=["IPv4", "IPv6"])


def resource(name="mesh", *, created="2026-01-01T00:00:00Z", **spec):
    found = mesh.read(
        {
            "kind": "PodMesh",
            "metadata": {"name": name, "namespace": "default", "creationTimestamp": created},
            "spec": {"podSelector": {}, "proxy": {"uid": PROXY}, **spec},
        }
    )
    assert isinstance(found, mesh.PodMesh), found
    return found


@pytest.fixture
def tables(pod):
    with KernelTables(pod.path) as opened:
        yield opened


@pytest.fixture
def applied(tables):
    return lambda *resources: mesh.apply(tables, mesh.plan(WEB, resources))


@pytest.fixture
def proxy(pod):
    """The proxy in the pod's namespace; what it says next."""
    program = [sys.executable, "-I", "-S", str(SCRIPT), str(PROXY), str(INBOUND), str(OUTBOUND)]
    running = subprocess.Popen(["nsenter", f"--net={pod.path}", *program], stdout=subprocess.PIPE, text=True)

    def said() -> str:
        return running.stdout.readline().strip()

    assert said() == f"listening {INBOUND} {OUTBOUND}"
    yield said
    running.kill()
    running.wait()
    running.stdout.close()


@BOTH
def test_outbound_connections_keep_their_destination_at_the_proxy(pod, gateways, proxy, applied, far):
    assert applied(resource(outbound={"port": OUTBOUND})) == (True, ())
    assert pod.ask(far, 80, uid=1000).startswith("proxied first")
    assert proxy() == f"{OUTBOUND} {far} 80"


@SELF
def test_inbound_connections_go_through_the_proxy(pod, gateways, proxy, applied, own):
    pod.serve(8080)
    applied(resource(inbound={"port": INBOUND}))
    assert gateways[0].ask(own, 8080) == f"proxied pod {own}"
    assert proxy() == f"{INBOUND} {own} 8080"


@BOTH
def test_both_directions_together_do_not_loop(pod, gateways, proxy, applied, far):
    pod.serve(8080)
    applied(resource(inbound={"port": INBOUND}, outbound={"port": OUTBOUND}))
    own = "fd01::5" if ":" in far else "10.1.0.5"
    assert gateways[1].ask(own, 8080).startswith("proxied pod")
    assert pod.ask(far, 80).startswith("proxied first")
    assert pod.ask(own, 8080, uid=1000) == f"pod {own}", "what the pod says to itself stays with itself"
    assert [proxy(), proxy()] == [f"{INBOUND} {own} 8080", f"{OUTBOUND} {far} 80"], "each connection came once"


@BOTH
@pytest.mark.parametrize(
    ("excluded", "how"),
    [
        ({"excludeCIDRs": ["10.20.0.0/16", "fd20::/64"]}, {}),
        ({"excludeCIDRs": ["10.20.0.1/32", "fd20::1/128"]}, {}),
        ({"excludeCIDRs": ["0.0.0.0/0", "::/0"]}, {}),
        ({"excludePorts": [443, 80]}, {}),
        ({"excludeUIDs": [999, 1000]}, {"uid": 1000}),
        ({"excludeGIDs": [2000]}, {"uid": 1000, "gid": 2000}),
    ],
    ids=["network", "address", "everywhere", "port", "uid", "gid"],
)
def test_an_excluded_connection_leaves_directly(pod, gateways, proxy, applied, far, excluded, how):
    applied(resource(outbound={"port": OUTBOUND, **excluded}))
    assert pod.ask(far, 80, **how).startswith("first")


@BOTH
@pytest.mark.parametrize(
    "excluded",
    [
        {"excludeCIDRs": ["10.30.0.0/16", "10.20.0.2/32", "fd30::/64"]},
        {"excludePorts": [443]},
        {"excludeUIDs": [1001]},
        {"excludeGIDs": [1000]},
    ],
    ids=["network", "port", "uid", "gid"],
)
def test_an_exclusion_applies_to_its_direction_only(pod, gateways, proxy, applied, far, excluded):
    applied(resource(outbound={"port": OUTBOUND, **excluded}))
    assert pod.ask(far, 80, uid=1000, gid=2000).startswith("proxied first")


@SELF
@pytest.mark.parametrize(
    "excluded", [{"excludeCIDRs": ["10.1.0.1/32", "fd01::1/128"]}, {"excludePorts": [8080]}], ids=["source", "port"]
)
def test_an_excluded_caller_or_port_reaches_the_pod_directly(pod, gateways, proxy, applied, own, excluded):
    pod.serve(8080)
    applied(resource(inbound={"port": INBOUND, **excluded}))
    assert gateways[0].ask(own, 8080).startswith("pod")
    if "excludeCIDRs" in excluded:
        assert gateways[1].ask(own, 8080).startswith("proxied pod")


@BOTH
@pytest.mark.parametrize(
    ("known", "how"),
    [({"uid": 77}, {"uid": 77}), ({"gid": 78}, {"gid": 78}), ({"mark": 0x539}, {"mark": 0x539})],
    ids=["uid", "gid", "mark"],
)
def test_the_proxys_own_connections_are_known_by(pod, gateways, proxy, applied, far, known, how):
    applied(resource(proxy=known, outbound={"port": OUTBOUND}))
    assert pod.ask(far, 80, **how).startswith("first")


@BOTH
def test_a_node_proxy_opens_marked_sockets_in_the_pods_namespace(pod, gateways, applied, far):
    """It runs as root, as programs of the pod may do too: it is known by its mark alone."""
    applied(resource(proxy={"mark": 0x539}, outbound={"port": OUTBOUND}))
    with pod.open(socket.AF_INET6) as listening:
        listening.bind(("::", OUTBOUND))
        listening.listen()
        with pod.connected(far, 80) as opened:
            came, _ = listening.accept()
            with came:
                assert original(came) == (far, 80)
                came.sendall(f"proxied {pod.ask(far, 80, mark=0x539)}".encode())
            assert opened.recv(100).startswith(b"proxied first")


@SELF
def test_the_proxys_ports_take_nothing_that_was_not_redirected(pod, gateways, proxy, applied, own):
    """A proxy that gets its own port as the destination would connect to itself for ever."""
    applied(resource(inbound={"port": INBOUND}, outbound={"port": OUTBOUND}))
    for caller, uid in ((gateways[0], 0), (pod, 1000), (pod, PROXY)):
        with pytest.raises(ConnectionRefusedError):
            caller.ask(own, INBOUND, uid=uid)
    assert gateways[0].ask(own, OUTBOUND) == f"refused {errno.ECONNREFUSED}", "redirected, and then refused"


@pytest.mark.parametrize("far", ["10.1.0.1", "fd01::1"], ids=["IPv4", "IPv6"])
def test_datagrams_are_untouched(pod, gateways, proxy, applied, far):
    applied(resource(inbound={"port": INBOUND}, outbound={"port": OUTBOUND}))
    family = socket.AF_INET6 if ":" in far else socket.AF_INET
    with gateways[0].open(family, socket.SOCK_DGRAM) as there, pod.open(family, socket.SOCK_DGRAM) as here:
        there.bind((far, 5353))
        here.sendto(b"question", (far, 5353))
        question, caller = there.recvfrom(100)
        there.sendto(b"answer", caller)
        assert (question, here.recv(100)) == (b"question", b"answer")


@BOTH
def test_connections_from_before_stay_as_they_are(pod, gateways, proxy, applied, far):
    family = socket.AF_INET6 if ":" in far else socket.AF_INET
    with gateways[0].open(family) as listening:
        listening.bind((far, 7000))
        listening.listen()
        with pod.connected(far, 7000, uid=1000) as opened:
            accepted, _ = listening.accept()
            with accepted:
                accepted.settimeout(30)
                applied(resource(outbound={"port": OUTBOUND}))
                opened.sendall(b"still here")
                assert accepted.recv(100) == b"still here"
                accepted.sendall(b"so am I")
                assert opened.recv(100) == b"so am I"


@BOTH
def test_a_remote_proxy_gets_the_connections_that_the_pod_opens(pod, gateways, applied, far):
    gateways[1].serve(15001)
    proxy = {"addresses": ["10.1.0.2", "fd01::2"]}
    assert applied(resource(proxy=proxy, outbound={"port": 15001, "excludePorts": [81]})) == (True, ())
    assert pod.ask(far, 443).startswith("second")
    assert applied(resource(proxy=proxy, outbound={"port": 15001, "excludePorts": [81]})) == (False, ())


def test_only_families_with_an_address_go_to_a_proxy_elsewhere(pod, gateways, applied):
    gateways[1].serve(15001)
    applied(resource(proxy={"addresses": ["10.1.0.2"]}, outbound={"port": 15001}))
    assert pod.ask("10.20.0.1", 80).startswith("second")
    assert pod.ask("fd20::1", 80).startswith("first")


FULL = resource(
    proxy={"uid": PROXY, "gid": PROXY, "mark": 5},
    inbound={"port": INBOUND, "excludeCIDRs": ["10.0.0.0/8", "fd00::/8"], "excludePorts": [1, 2]},
    outbound={"port": OUTBOUND, "excludeCIDRs": ["::/0"], "excludeUIDs": [0, 1], "excludeGIDs": [0]},
)


def test_applying_again_changes_nothing(applied):
    assert applied(FULL) == (True, ())
    assert applied(FULL) == (False, ())


def test_a_changed_resource_is_put_in_place_of_the_old_one(pod, gateways, proxy, applied):
    applied(resource(outbound={"port": OUTBOUND}))
    assert applied(resource(outbound={"port": OUTBOUND, "excludePorts": [80]})) == (True, ())
    assert pod.ask("10.20.0.1", 80, uid=1000).startswith("first")


def test_changes_of_our_table_by_others_are_repaired(pod, tables, applied):
    applied(FULL)
    subprocess.run(["nsenter", f"--net={pod.path}", "nft", "flush", "chain", "inet", TABLE, "guard"], check=True)
    assert applied(FULL) == (True, ())
    assert applied(FULL) == (False, ())


def test_removal_leaves_nothing_of_ours_and_everything_of_others(tables, applied):
    other = Table("other", (Chain("own", hook=1),))
    tables.put(other)
    applied(FULL)
    assert mesh.remove(tables) is True
    assert tables.get(TABLE) is None
    assert tables.get("other") == other
    assert mesh.remove(tables) is False


def test_a_resource_that_no_longer_concerns_the_pod_is_taken_away(pod, gateways, tables, applied):
    applied(resource(outbound={"port": OUTBOUND}))
    assert applied() == (True, ())
    assert pod.ask("10.20.0.1", 80).startswith("first")


def test_a_rejection_by_the_kernel_is_a_problem(tables):
    class Refusing:
        get = tables.get
        delete = tables.delete

        def put(self, table, *, instead=False):
            tables.put(table._replace(chains=(Chain("outbound", (), 3, -100, "no such type"),)))

    changed, [trouble] = mesh.apply(Refusing(), mesh.plan(WEB, [FULL]))
    assert (changed, trouble.why, trouble.fatal) == (False, Why.FAILED, True)
    assert trouble.reason.startswith(f"put nft table {TABLE}")
    assert tables.get(TABLE) is None, "all or nothing"


def test_people_can_read_the_table_with_nft(pod, applied):
    applied(FULL)
    command = ["nsenter", f"--net={pod.path}", "nft", "list", "table", "inet", TABLE]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in (
        "tcp flags",
        f"meta skuid {PROXY} return",
        "ip saddr 10.0.0.0/8 return",
        "ip6 saddr fd00::/8 return",
        f"tcp dport {OUTBOUND} ct state new ct status ! dnat reject with tcp reset",
    ):
        assert line in shown
