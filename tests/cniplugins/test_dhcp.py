"""The IPAM plugin dhcp, its daemon as a process, and a DHCP server on the pod's network. The packets are real."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from ipaddress import IPv4Address, ip_interface
from pathlib import Path

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Bridge, Veth
from podwire.protocols.dhcp import options
from podwire.protocols.dhcp.messages import EVERYBODY, Type
from tests.dhcp_server import SERVER, Server
from tests.eventually import eventually

all_ways = pytest.mark.parametrize("way", ["in process", "program", "daemon"])
FIRST = "10.77.0.100"
REFERENCE = Path("/usr/lib/cni")
CLIENT_ID = b"\0a/net/eth0"
SOON, LATER, LATEST = 1, 50_000, 100_000
"""T1, T2 and the end of a lease."""


UDHCPD = """\
start 10.77.0.50
end 10.77.0.50
interface srv
lease_file {directory}/udhcpd.leases
pidfile {directory}/udhcpd.pid
max_leases 1
min_lease 60
option subnet 255.255.255.0
option router 10.77.0.1
option lease 600
"""


class Lan:
    """A DHCP server in a namespace of its own, on the same network as the host's link `wire0`."""

    def __init__(self, host, master=None):
        self.host, self.socket = host, host.root / "dhcp.sock"
        self.netns = host.pod("server")
        with KernelNetwork() as near, KernelNetwork(self.netns) as far:
            near.links.add(Veth("wire0", "srv", self.netns, up=True))
            if master is not None:
                near.links.add(Bridge(master, up=True))
                near.links.change("wire0", master=near.links.get(master).ifindex)
            far.links.change("srv", up=True)
            far.addresses.add(far.links.get("srv").ifindex, ip_interface(f"{SERVER}/24"))

    @contextmanager
    def server(self):
        """Serves in a thread of its own."""
        started, opened = threading.Event(), []

        async def serve():
            opened.extend((Server(self.netns), asyncio.get_running_loop(), stopped := asyncio.Event()))
            started.set()
            await stopped.wait()
            opened[0].close()

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        assert started.wait(60)
        try:
            yield opened[0]
        finally:
            opened[1].call_soon_threadsafe(opened[2].set)
            thread.join(60)

    @contextmanager
    def daemon(self, timeout=30):
        argv = [sys.executable, "-m", "podwire.cli.main", "cni", "dhcp-daemon"]
        argv += ["--socket", str(self.socket), "--timeout", str(timeout), "--retry", "0.5"]
        with subprocess.Popen(argv) as process:
            try:
                eventually(lambda: process.poll() is not None or self.answers())
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(60)
                finally:
                    process.kill()

    def answers(self):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def config(self, plugin="macvlan", **ipam):
        keys = {"bridge": "br0"} if plugin == "bridge" else {"master": "wire0"}
        ipam = {"type": "dhcp", "daemonSocketPath": str(self.socket), **ipam}
        return self.host.config(plugin, **keys) | {"ipam": ipam}

    def leases(self):
        directory = self.host.root / "dhcp.leases"
        return [path.name for path in directory.iterdir()] if directory.exists() else []


def heard(server, kind, times=1):
    """Waits for a message of this type; returns it, and the datagram."""
    eventually(lambda: server.types.count(kind) >= times, explain=lambda: server.types)
    return [pair for pair in tuple(server.heard) if pair[0].type is kind][times - 1]


def renewals(server):
    """Returns the datagrams that asked for more time."""
    pairs = tuple(server.heard)
    return [datagram for message, datagram in pairs if message.type is Type.REQUEST and int(message.ciaddr)]


def addresses(netns):
    with KernelNetwork(netns) as pod:
        return [
            str(address.interface)
            for address in pod.addresses.list(pod.links.get("eth0").ifindex)
            if "." in str(address)
        ]


def default_routes(netns):
    with KernelNetwork(netns) as pod:
        return [str(route.gateway) for route in pod.routes.list(4) if not route.destination.prefixlen]


@all_ways
def test_a_pod_on_a_macvlan_gets_what_the_server_leases_and_del_releases_it(host, way):
    lan, pod = Lan(host), host.pod("a")
    with lan.server() as server, lan.daemon():
        server.more = {
            options.ROUTER: SERVER.packed,
            options.STATIC_ROUTES: bytes((10, 0, 0, 0, 10, 77, 0, 254)),
            options.DNS: bytes((10, 77, 0, 2)),
            options.DOMAIN: b"lab.example",
        }
        config = lan.config()
        result = host.add("a", config)
        assert result["ips"] == [{"interface": 0, "address": f"{FIRST}/24", "gateway": str(SERVER)}]
        assert result["routes"] == [{"dst": "10.0.0.0/8", "gw": "10.77.0.254"}, {"dst": "0.0.0.0/0", "gw": str(SERVER)}]
        assert (addresses(pod), default_routes(pod)) == ([f"{FIRST}/24"], [str(SERVER)])
        discover, _ = server.heard[0]
        assert discover.options[options.CLIENT_ID] == CLIENT_ID
        host.check("a", config, result)
        assert host.add("a", config) == result
        host.delete("a", config)
        release, datagram = heard(server, Type.RELEASE)
        assert (str(release.ciaddr), release.options[options.CLIENT_ID]) == (FIRST, CLIENT_ID)
        assert datagram.source_mac.hex(":") == result["interfaces"][0]["mac"]
        host.delete("a", config)
        assert (lan.leases(), host.left()) == ([], {})


@all_ways
def test_a_pod_on_a_bridge_gets_classless_routes_and_dns(host, way):
    lan, pod = Lan(host, "br0"), host.pod("a")
    with lan.server() as server, lan.daemon():
        server.more = {
            options.CLASSLESS_ROUTES: bytes((24, 10, 5, 0, 0, 0, 0, 0, 0, 10, 77, 0, 1)),
            options.ROUTER: bytes((10, 77, 0, 9)),
            options.DNS: bytes((10, 77, 0, 2)),
            options.DOMAIN: b"lab.example",
        }
        config = lan.config("bridge", priority=50) | {"ipspoofchk": True}
        result = host.add("a", config)
        assert result["ips"] == [{"interface": 2, "address": f"{FIRST}/24", "gateway": "10.77.0.9"}]
        assert result["routes"] == [
            {"dst": "10.5.0.0/24", "gw": "0.0.0.0", "priority": 50, "scope": 253},
            {"dst": "0.0.0.0/0", "gw": str(SERVER), "priority": 50},
        ]
        assert result["dns"] == {"nameservers": ["10.77.0.2"], "domain": "lab.example"}
        with KernelNetwork(pod) as inside:
            routes = {str(route.destination): (route.gateway, route.metric) for route in inside.routes.list(4)}
        assert (routes["10.5.0.0/24"], routes["0.0.0.0/0"]) == ((None, 50), (SERVER, 50))
        host.check("a", config, result)
        host.delete("a", config)
        heard(server, Type.RELEASE)
        assert (lan.leases(), host.left()) == ([], {})


def test_a_device_of_the_host_gets_a_lease_and_returns_without_it(host):
    lan, pod = Lan(host), host.pod("a")
    with lan.server() as server, lan.daemon():
        config = {**lan.config("host-device"), "device": "wire0"}
        host.add("a", config)
        assert addresses(pod) == [f"{FIRST}/24"]
        host.delete("a", config)
        heard(server, Type.RELEASE)
        with KernelNetwork() as network:
            index = network.links.get("wire0").ifindex
            assert not [address for address in network.addresses.list(index) if "." in str(address.interface)]


def test_lease_is_renewed_also_by_the_daemon_after_one_that_was_killed(host):
    lan, pod = Lan(host), host.pod("a")
    with lan.server() as server:
        server.t1, server.t2, server.seconds = SOON, LATER, LATEST
        with lan.daemon() as daemon:
            host.add("a", lan.config())
            datagram = eventually(lambda: renewals(server))[0]
            assert (str(datagram.source), datagram.target) == (FIRST, SERVER)
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
        before, discovered = len(renewals(server)), server.types.count(Type.DISCOVER)
        with lan.daemon():
            eventually(lambda: len(renewals(server)) > before)
            assert (addresses(pod), server.types.count(Type.DISCOVER)) == ([f"{FIRST}/24"], discovered)
            host.delete("a", lan.config())
            assert str(heard(server, Type.RELEASE)[0].ciaddr) == FIRST
        assert (lan.leases(), host.left()) == ([], {})


def test_del_without_the_daemon_is_repeated_when_it_runs_again(host, refused):
    lan = Lan(host)
    host.pod("a")
    with lan.server() as server:
        with lan.daemon():
            result = host.add("a", lan.config())
        with refused(11, match="error dialing DHCP daemon"):
            host.delete("a", lan.config())
        host.delete("b", lan.config(), netns="")  # it never had a lease
        with lan.daemon():
            host.delete("a", lan.config())
            release, datagram = heard(server, Type.RELEASE)
            assert (str(release.ciaddr), datagram.source_mac.hex(":")) == (FIRST, result["interfaces"][0]["mac"])
        assert (lan.leases(), host.left()) == ([], {})


@pytest.mark.parametrize("point", ["recorded", "made", "connected", "leased", "attached", "added"])
def test_del_after_an_add_that_was_killed_releases_everything(host, point):
    lan = Lan(host)
    host.pod("a")
    with lan.server() as server, lan.daemon():
        code, _, _ = host.died("ADD", lan.config(), f"cni.macvlan-{point}")
        assert code == -signal.SIGKILL
        assert len(lan.leases()) == (point in ("leased", "attached", "added"))
        host.delete("a", lan.config())
        assert (lan.leases(), host.left()) == ([], {})
        host.add("a", lan.config())
        assert server.given == {CLIENT_ID: IPv4Address(FIRST)}


def test_server_of_others_leases_an_address_and_gets_it_back(host):
    busybox = shutil.which("busybox")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout if busybox else ""
    if "udhcpd" not in applets.split():
        pytest.skip("busybox has no udhcpd here")
    lan, pod = Lan(host), host.pod("a")
    conf, log = host.root / "udhcpd.conf", host.root / "udhcpd.log"
    (host.root / "udhcpd.leases").touch()
    conf.write_text(UDHCPD.format(directory=host.root))
    words = ["nsenter", f"--net={lan.netns}", "--", busybox, "udhcpd", "-f", str(conf)]
    with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=out) as server, lan.daemon():
        try:
            result = host.add("a", lan.config())
            assert result["ips"][0]["address"] == "10.77.0.50/24"
            assert default_routes(pod) == [str(SERVER)]
            host.pod("b")
            host.delete("a", lan.config())
            assert host.add("b", lan.config())["ips"][0]["address"] == "10.77.0.50/24"  # it has no other
        finally:
            server.terminate()


def test_silent_server_is_an_error_after_the_timeout_and_leaves_nothing(host, refused):
    lan = Lan(host)
    host.pod("a")
    with lan.server() as server, lan.daemon(timeout=0.5):
        server.silent_to = {Type.DISCOVER}
        with refused(11, match=r"DHCP: no server answered, after 0\.5 s"):
            host.add("a", lan.config())
        assert Type.DISCOVER in server.types
        assert (lan.leases(), host.left()) == ([], {})


def test_withdrawn_address_is_removed_and_only_the_same_one_is_taken_again(host, refused):
    lan, pod = Lan(host), host.pod("a")
    with lan.server() as server, lan.daemon():
        server.t1, server.t2, server.seconds = SOON, LATER, LATEST
        server.more = {options.ROUTER: SERVER.packed}
        config = lan.config()
        result = host.add("a", config)
        server.refuses = {IPv4Address(FIRST)}  # the renewal gets a NAK, and a new request another address
        del server.given[CLIENT_ID]
        eventually(lambda: addresses(pod) == [])
        with refused(101, match="DHCP lease of 10.77.0.100 has ended"):
            host.check("a", config, result)
        release, _ = heard(server, Type.RELEASE)
        assert release.ciaddr == IPv4Address(FIRST) + 1
        server.refuses = set()
        eventually(lambda: addresses(pod) == [f"{FIRST}/24"])
        eventually(lambda: default_routes(pod) == [str(SERVER)])
        host.check("a", config, result)


def test_lease_is_asked_of_every_server_before_it_ends(host):
    lan = Lan(host)
    host.pod("a")
    with lan.server() as server, lan.daemon():
        server.t1, server.t2, server.seconds = 1, 2, LATEST
        server.ignores = lambda message, datagram: int(message.ciaddr) and datagram.target != EVERYBODY
        host.add("a", lan.config())

        rebinding = eventually(lambda: [renewal for renewal in renewals(server) if renewal.target == EVERYBODY])
        assert str(rebinding[0].source) == FIRST


def test_lease_of_a_pod_that_is_gone_is_released_over_its_master(host):
    lan = Lan(host)
    host.pod("a")
    with lan.server() as server, lan.daemon():
        result = host.add("a", lan.config())
        host.namespaces.remove("a")
        host.delete("a", lan.config(), netns="")
        _, datagram = heard(server, Type.RELEASE)
        assert datagram.source_mac.hex(":") == result["interfaces"][0]["mac"]
        assert (lan.leases(), host.left()) == ([], {})


def test_gc_releases_the_leases_of_others_than_valid_attachments(host):
    lan = Lan(host)
    with lan.server() as server, lan.daemon():
        for name in "ab":
            host.pod(name)
            host.add(name, lan.config())
        valid = {"cni.dev/valid-attachments": [{"containerID": "b", "ifname": "eth0"}]}
        host.call("GC", "a", lan.config() | valid)
        assert str(heard(server, Type.RELEASE)[0].ciaddr) == FIRST
        assert len(lan.leases()) == 1
        ipam = {"cniVersion": "1.1.0", "name": "net", "type": "dhcp", "ipam": lan.config()["ipam"]}
        host.call("GC", "a", ipam | {"cni.dev/valid-attachments": []})
        heard(server, Type.RELEASE, 2)
        assert lan.leases() == []


def test_status_and_add_without_a_daemon_name_its_socket(host, refused):
    lan = Lan(host)
    host.pod("a")
    with refused(50, match="error dialing DHCP daemon: .*dhcp.sock: No such file or directory"):
        host.call("STATUS", "a", lan.config())
    with refused(11, match="error dialing DHCP daemon"):
        host.add("a", lan.config())
    host.delete("a", lan.config())
    assert host.left() == {}


def test_another_server_on_the_socket_is_an_error(host, refused):
    lan = Lan(host)
    host.pod("a")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(lan.socket))
        listener.listen()

        def serve():
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(1 << 16).endswith(b"\n")
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        with refused(50, match="dhcp.sock: answer of a daemon that is not podwire's"):
            host.call("STATUS", "a", lan.config())


def test_plugin_without_a_network_behind_its_link_refuses_dhcp(host, refused):
    lan = Lan(host)
    host.pod("a")
    with refused(2, match="ipam.type: 'dhcp' is not supported by podwire's ptp"):
        host.add("a", {**lan.config(), "type": "ptp"})
    with refused(2, match="ipam.type: 'dhcp' is not supported by podwire's ptp"):
        host.call("STATUS", "a", {**lan.config(), "type": "ptp"})


def test_lease_of_a_pod_that_ended_without_del_is_forgotten(host):
    lan = Lan(host)
    host.pod("a")
    with lan.server() as server, lan.daemon():
        server.seconds = 2
        host.add("a", lan.config())
        host.namespaces.remove("a")
        eventually(lambda: lan.leases() == [])
        host.delete("a", lan.config(), netns="")
        assert host.left() == {}


@pytest.mark.parametrize("way", ["program"])
def test_macvlan_of_the_reference_gets_a_lease_of_our_dhcp(host, way):
    if not (REFERENCE / "macvlan").exists():
        pytest.skip(f"{REFERENCE} has no reference plugins")
    lan, pod = Lan(host), host.pod("a")
    ours, host.programs = host.programs, REFERENCE
    path = {"CNI_PATH": f"{ours}:{REFERENCE}"}
    with lan.server() as server, lan.daemon():
        config = lan.config() | {"cniVersion": "1.0.0"}
        assert host.add("a", config, **path)["ips"][0]["address"] == f"{FIRST}/24"
        assert addresses(pod) == [f"{FIRST}/24"]
        host.delete("a", config, **path)
        heard(server, Type.RELEASE)
        assert lan.leases() == []


def test_our_macvlan_gets_a_lease_of_the_reference_plugin(host):
    if not (REFERENCE / "dhcp").exists():
        pytest.skip(f"{REFERENCE} has no reference plugins")
    lan, pod = Lan(host), host.pod("a")
    path = {"CNI_PATH": str(REFERENCE)}
    words = [str(REFERENCE / "dhcp"), "daemon", "-socketpath", str(lan.socket)]
    with lan.server() as server, subprocess.Popen(words, stderr=subprocess.DEVNULL) as daemon:
        try:
            eventually(lan.socket.exists)
            config = lan.config() | {"cniVersion": "1.0.0"}
            assert host.add("a", config, **path)["ips"][0]["address"] == f"{FIRST}/24"
            assert addresses(pod) == [f"{FIRST}/24"]
            host.delete("a", config, **path)
            heard(server, Type.RELEASE)
            assert host.left() == {}
        finally:
            daemon.terminate()


def test_options_of_the_configuration_and_of_arguments_are_sent(host):
    lan = Lan(host)
    host.pod("a")
    with lan.server() as server, lan.daemon():
        config = lan.config(
            provide=[
                {"option": "host-name", "value": "default", "fromArg": "K8S_POD_NAME"},
                {"option": "dhcp-client-identifier", "value": "me"},
                {"option": "60", "value": "pods"},
                {"option": "user-class", "fromArg": "MISSING"},
            ],
            request=[{"option": "42"}, {"option": "routers"}, {"skipDefault": True}],
        )
        host.add("a", config, CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAME=web-0")
        for message, _ in server.heard[:2]:
            sent = {code: message.options.get(code) for code in (12, 61, 60, 77, 55)}
            assert sent == {12: b"web-0", 61: b"me", 60: b"pods", 77: None, 55: bytes((42, 3))}
        host.delete("a", config)
        assert heard(server, Type.RELEASE)[0].options[61] == b"me"


@pytest.mark.parametrize(
    ("ipam", "code", "message"),
    [
        ({"provide": [{"option": "nonsense", "value": "x"}]}, 7, 'Can not parse option "nonsense"'),
        ({"provide": [{"option": "256", "value": "x"}]}, 7, 'Can not parse option "256"'),
        ({"provide": [{"option": "53", "value": "x"}]}, 7, r"ipam.provide\[0\].option: 53 is set by the DHCP client"),
        ({"provide": [{"option": "60", "value": "x" * 256}]}, 7, 'value too long for option "60"'),
        ({"provide": ["60"]}, 6, "provide"),
        ({"request": [{"option": "0"}]}, 7, r"ipam.request\[0\].option: 0 is not an option"),
        ({"request": [{"option": 3}]}, 6, r"ipam.request\[0\].option: 3 is not a string"),
        ({"priority": -1}, 7, "ipam.priority: -1 is not a metric"),
        ({"daemonSocketPath": 5}, 6, "ipam.daemonSocketPath: 5 is not a string"),
        ({"daemonSocketPath": "/" + "x" * 200}, 11, "error dialing DHCP daemon: /x+: AF_UNIX path too long"),
    ],
)
def test_bad_configuration_is_an_error_with_its_field(host, refused, ipam, code, message):
    lan = Lan(host)
    host.pod("a")
    with refused(code, match=message):
        host.add("a", lan.config(**ipam))
    assert host.left() == {}


@pytest.mark.parametrize(
    ("call", "code"),
    [(b"{}", 6), (b"[", 6), (b'{"verb": "dance"}', 6), (b'{"verb": "acquire"}', 6), (b'{"verb": "release"}', 6)],
)
def test_daemon_answers_a_malformed_call_with_an_error(tmp_path, call, code):
    from podwire.ipam.dhcp.daemon import DhcpDaemon

    assert asyncio.run(_answer(DhcpDaemon(tmp_path), call))["code"] == code


async def _answer(daemon, call):
    return await daemon.answer(call)


def test_caller_that_disconnects_cancels_what_was_begun(host):
    lan = Lan(host)
    host.pod("a")
    with lan.server() as server, lan.daemon():
        server.silent_to = {Type.DISCOVER}
        process = host.run("ADD", "a", lan.config())
        heard(server, Type.DISCOVER)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        server.silent_to = set()
        count = server.types.count(Type.REQUEST)
        host.delete("a", lan.config())
        assert (server.types.count(Type.REQUEST), lan.leases(), host.left()) == (count, [], {})
