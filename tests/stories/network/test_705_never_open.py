"""A stranger who never stops trying gets no packet through, whatever happens to policies, plugin and runtime."""

import socket
import threading
import time

import pytest

pytestmark = pytest.mark.timeout(500)

PORT = 5000
POLICY = """
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: good}}}], ports: [{protocol: UDP, port: 5000}, {port: EXTRA}]}]
"""


class Sender(threading.Thread):
    """Sends datagrams, each of a connection of its own: nothing is established."""

    def __init__(self, peer, address):
        super().__init__(daemon=True)
        self._peer, self._address, self._over = peer, address, threading.Event()

    def run(self):
        while not self._over.wait(0.002):
            with self._peer.open(socket.AF_INET, socket.SOCK_DGRAM) as opened:
                opened.sendto(self._peer.name.encode(), (self._address, PORT))

    def close(self):
        self._over.set()
        self.join()


class Receiver(threading.Thread):
    """Counts datagrams by who sent them."""

    def __init__(self, peer):
        super().__init__(daemon=True)
        self._socket = peer.open(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("0.0.0.0", PORT))
        self._socket.settimeout(0.2)
        self._over = threading.Event()
        self.seen = {}

    def run(self):
        while not self._over.is_set():
            try:
                data, _ = self._socket.recvfrom(64)
            except TimeoutError:
                continue
            name = data.decode()
            self.seen[name] = self.seen.get(name, 0) + 1

    def close(self):
        self._over.set()
        self.join()
        self._socket.close()


def test_a_stranger_never_gets_through(network, a_pod, a_policy):
    network.up()
    cluster = network.cluster
    cluster.apply(a_policy("web", POLICY.replace("EXTRA", "80")))
    pods = [a_pod(name, labels={"app": name}) for name in ("web", "good", "other")]
    web, good, other = network.run(*pods).values()
    receiver = Receiver(web)
    everybody = [receiver, Sender(good, web.ip), Sender(other, web.ip)]

    def more_from_good():
        before = receiver.seen.get("good", 0)
        cluster.eventually(
            lambda: receiver.seen.get("good", 0) > before + 20, "who may still can", network.plugin.log_tail
        )

    for item in everybody:
        item.start()
    try:
        more_from_good()
        for extra in range(1000, 1006):
            more = a_policy(f"more-{extra}", "{podSelector: {}}")
            cluster.apply(a_policy("web", POLICY.replace("EXTRA", str(extra))), more)
        more_from_good()
        cluster.output("delete", "networkpolicy", *(f"more-{number}" for number in range(1000, 1006)))
        cluster.output("label", "pod", "other", "app=another", "--overwrite")
        more_from_good()
        network.plugin.kill()
        more_from_good()
        network.plugin.start()
        more_from_good()
        cluster.signal("runtime")
        cluster.eventually(cluster.is_up, "the runtime is back")
        cluster.eventually(lambda: network.plugin.page("readyz") == (200, "ok"), "the plugin is connected again")
        more_from_good()
        time.sleep(0.5)  # the stranger has that much more
    finally:
        for item in everybody:
            item.close()
    assert receiver.seen.keys() == {"good"}
    cluster.delete_all()
