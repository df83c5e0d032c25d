"""PodRoutes and PodMeshes on a cluster: real connections show which way they went."""

import ctypes
import socket
import struct
import subprocess
import threading

import pytest

from podwire.linux.proc.namespaces import visit

pytestmark = pytest.mark.timeout(400)

FAR, PORT = "10.77.0.1", 8080
"""An address of the node that only its default route leads pods to."""
USER = 1337
ORIGINAL_DESTINATION = 80
ROUTE = "{podSelector: {matchLabels: {app: web}}, routes: [{destinations: [10.77.0.0/24], via: GATEWAY, mtu: MTU}]}"
MESH = (
    "{podSelector: {matchLabels: {mesh: 'yes'}}, proxy: {uid: 1337}, inbound: {port: 15006}, outbound: {port: 15001}}"
)
WEB_FROM_GOOD = """
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: good}}}], ports: [{port: 80}]}]
"""
_libc = ctypes.CDLL(None)


def gateway_of(peer):
    with visit(peer._netns):
        done = subprocess.run(["ip", "route", "show", "default"], capture_output=True, text=True, check=True)
    return done.stdout.split()[2]


@pytest.fixture
def far(network):
    """Somebody far away who takes connections; up once the cluster is."""
    listening = []

    def listen():
        subprocess.run(
            ["nsenter", f"--net={network.plugin.node}", "ip", "addr", "add", f"{FAR}/32", "dev", "lo"], check=True
        )
        with visit(network.plugin.node):
            opened = socket.create_server((FAR, PORT))
        listening.append(opened)

    yield listen
    for item in listening:
        item.close()


def segment(peer):
    """The size of segments that TCP chose: it knows the way's MTU."""
    with peer.open() as opened:
        opened.settimeout(30)
        opened.connect((FAR, PORT))
        return opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)


def test_routes_come_change_and_go_with_their_resource(network, far, a_pod, a_resource):
    network.up()
    cluster = network.cluster
    far()
    other = network.peer(cluster.apply(a_pod("other")) or "other")
    gateway = gateway_of(other)
    cluster.apply(a_resource("PodRoute", "small", ROUTE.replace("GATEWAY", gateway).replace("MTU", "1000")))
    [web] = network.run(a_pod("web", labels={"app": "web"})).values()
    assert segment(web) < 1000 < segment(other)

    def status(what):
        return cluster.output("get", "podroute", "small", "-o", f"jsonpath={{.status.{what}}}")

    cluster.eventually(lambda: status("pods") == "1", "its status counts the pod", network.plugin.log_tail)
    assert status('conditions[?(@.type=="Ready")].status') == "True"
    cluster.apply(a_resource("PodRoute", "small", ROUTE.replace("GATEWAY", gateway).replace("MTU", "1200")))
    cluster.eventually(lambda: 1000 < segment(web) < 1200, "the other MTU is set")
    cluster.output("label", "pod", "other", "app=web")
    cluster.eventually(lambda: segment(other) < 1200, "a pod that is selected later has the route, too")
    cluster.eventually(lambda: status("pods") == "2", "its status counts both")
    network.plugin.kill()
    cluster.output("delete", "podroute", "small")
    assert segment(web) < 1200, "without the plugin all stays as it is"
    network.plugin.start()
    cluster.eventually(lambda: segment(web) > 1200 and segment(other) > 1200, "the routes are gone")
    cluster.delete_all()


class Proxy:
    """Takes what is redirected, notes where it was meant to go, and passes it on, as a user of its own."""

    def __init__(self, peer, *ports):
        self.peer, self.seen, self._listening = peer, [], []
        for port in ports:
            listening = self._open()
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("0.0.0.0", port))
            listening.listen()
            self._listening.append(listening)
            threading.Thread(target=self._serve, args=(listening, port), daemon=True).start()

    def _open(self):
        _libc.setfsuid(USER)
        try:
            return self.peer.open()
        finally:
            _libc.setfsuid(0)

    def _serve(self, listening, port):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            option = connection.getsockopt(socket.SOL_IP, ORIGINAL_DESTINATION, 16)
            wanted = socket.inet_ntoa(option[4:8]), struct.unpack("!H", option[2:4])[0]
            self.seen.append((port, *wanted))
            threading.Thread(target=self._pass, args=(connection, wanted), daemon=True).start()

    def _pass(self, connection, wanted):
        with connection, self._open() as onward:
            onward.settimeout(30)
            onward.connect(wanted)
            connection.sendall(onward.recv(64))

    def close(self):
        for item in self._listening:
            item.shutdown(socket.SHUT_RDWR)
            item.close()


def test_connections_go_through_the_proxy_of_a_mesh_and_policies_hold_all_the_same(
    network, a_pod, a_policy, a_resource
):
    network.up()
    cluster = network.cluster
    cluster.apply(a_resource("PodMesh", "mesh", MESH))
    cluster.apply(a_policy("web", WEB_FROM_GOOD))
    pods = [a_pod(name, labels={"app": name}) for name in ("good", "other")]
    good, other, web = network.run(*pods, a_pod("web", labels={"app": "web", "mesh": "yes"})).values()
    web.listen(80)
    other.listen(8000)
    proxy = Proxy(web, 15001, 15006)
    try:
        assert good.may(web, 80, 30), "inbound, through the proxy"
        assert web.may(other, 8000, 30), "outbound, through the proxy"
        assert proxy.seen == [(15006, web.ip, 80), (15001, other.ip, 8000)]
        assert not other.may(web, 80), "the policy holds, whatever the mesh does"
        assert network.explained("good", "web", 80)
        assert not network.explained("other", "web", 80)
        cluster.output("delete", "podmesh", "mesh")

        def direct():
            seen = len(proxy.seen)
            return web.may(other, 8000, 30) and len(proxy.seen) == seen

        cluster.eventually(direct, "without the resource the proxy is passed by", network.plugin.log_tail)
        assert good.may(web, 80, 30)
    finally:
        proxy.close()
    cluster.delete_all()
