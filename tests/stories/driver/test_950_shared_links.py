"""Links that many pods have a part of: interfaces made for claims, bandwidth that is counted and enforced, addresses
that nobody has twice, leases."""

import contextlib
import shutil
import socket
import subprocess
import threading
import time

import pytest

from podwire.linux.proc.namespaces import visit

MEGABYTE = 1_000_000
CONFIG = {
    "shared": [{"interface": "up1", "slots": 3, "bandwidth": "100M"}],
    "pools": {"lab": {"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.100", "rangeEnd": "10.9.0.102"}},
}


@pytest.fixture(scope="module")
def stage(empty_stage):
    made = empty_stage
    made.up(config=CONFIG)
    made.veth("up1", far="10.7.0.254/24")
    made.veth("up2")
    made.bridge("br0")
    made.batch("addr add 10.9.0.1/24 dev br0")
    made.driver.start()
    made.offered("up1", "br0")
    return made


class Far:
    """A program at the other end of a link: takes what comes, or gives so much."""

    def __init__(self, stage, gives=0):
        with visit(stage.netns):
            self._listening = socket.create_server(("10.7.0.254", 0))
        self.port, self.taken, self._gives = self._listening.getsockname()[1], 0, gives
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        connection, _ = self._listening.accept()
        with connection:
            if self._gives:
                connection.sendall(bytes(self._gives))
                connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(65536):
                self.taken += len(data)

    def close(self):
        self._thread.join(60)
        self._listening.close()


def test_a_shared_link_limits_bandwidth_both_ways_and_is_not_overcommitted(stage, claim):
    before = stage.dump("up1")
    part = {"shared": True, "kind_": "macvlan"}
    stage.run(
        claim("slow", "up1", bandwidth="10M", addresses=["10.7.0.1/24"], **part),
        claim("quick", "up1", bandwidth="80M", addresses=["10.7.0.2/24"], **part),
        stage.pod("slow", "slow"),
        stage.pod("quick", "quick"),
    )
    assert stage.inside("quick", "wget -qO- http://10.7.0.1/") == "slow"
    took = {}
    for name, gives, command in (
        ("out", 0, "dd if=/dev/zero bs=10000 count=300 2>/dev/null | nc 10.7.0.254 {}"),
        ("in", 3 * MEGABYTE, "nc 10.7.0.254 {} </dev/null | wc -c"),
    ):
        far = Far(stage, gives)
        begun = time.monotonic()
        said = stage.inside("slow", command.format(far.port))
        took[name] = time.monotonic() - begun
        far.close()
        assert (far.taken, said) == ((3 * MEGABYTE, "") if name == "out" else (0, str(3 * MEGABYTE)))
    at_most = {name: 24 * MEGABYTE / seconds for name, seconds in took.items()}
    assert max(at_most.values()) < 15 * MEGABYTE, f"of 10M bits per second: {at_most}"
    stage.cluster.apply(
        claim("late", "up1", bandwidth="20M", addresses=["10.7.0.3/24"], **part), stage.pod("late", "late")
    )
    assert "bandwidth: 10M left < 20M" in stage.waits("late", "FailedScheduling")
    stage.deleted("slow")
    stage.ready("late")
    stage.deleted("quick", "late")
    stage.as_before(before, "up1")
    stage.never_bare("slow", "quick", "late")


def test_children_of_all_kinds_with_addresses_of_a_pool_that_are_kept_and_given_back(stage, claim):
    before = stage.dump("br0", "up")
    tun = {"name": "tap1", "kind_": "tap"}
    stage.run(
        claim("a", "br0", shared=True, kind_="veth", addressPool="lab"),
        claim("b", "br0", shared=True, kind_="veth", addressPool="lab"),
        claim("tap", "br0", shared=True, **tun, addressPool="lab"),
        claim("vx1", "up1", shared=True, kind_="vxlan", vni=7, name="vx", bandwidth="1M", addresses=["10.66.0.1/24"]),
        stage.pod("a", "a"),
        stage.pod("b", "b"),
        stage.pod("tap", "tap", "vx1", interfaces="tap1 vx"),
    )
    addresses = {
        name: stage.claimed_devices(name, "True", "Attached")[0]["networkData"]["ips"][0] for name in ("a", "b", "tap")
    }
    assert sorted(addresses.values()) == [f"10.9.0.{number}/24" for number in (100, 101, 102)]
    assert stage.inside("a", f"wget -qO- http://{addresses['b'].partition('/')[0]}/") == "b"
    assert stage.inside("tap", "ls /dev/net/tun") == "/dev/net/tun"
    kinds = {
        link["ifname"]: link["linkinfo"]["info_kind"]
        for link in stage.look("tap", "-d link show")
        if "linkinfo" in link
    }
    assert (kinds["tap1"], kinds["vx"]) == ("tun", "vxlan")
    stage.cluster.apply(claim("none", "br0", shared=True, kind_="veth", addressPool="lab"), stage.pod("none", "none"))
    stage.waits("none", "FailedPrepareDynamicResources", "lab")
    deaths = stage.cluster.restarts("kubelet")
    stage.cluster.signal("kubelet")
    stage.cluster.eventually(lambda: stage.cluster.restarts("kubelet") > deaths and stage.cluster.is_up(), "it is back")
    assert stage.look("a", "-4 addr show dev net1")[0]["addr_info"][0]["local"] == addresses["a"].partition("/")[0]
    stage.deleted("b")
    stage.ready("none")
    assert stage.claimed_devices("none", "True", "Attached")[0]["networkData"]["ips"] == [addresses["b"]]
    stage.deleted("a", "tap", "none")
    stage.as_before(before, "br0", "up")
    stage.never_bare("a", "b", "tap", "none")


def test_false_and_zero_of_a_claim_override_its_class(stage, claim, parameters):
    """`false` and `0` of the claim, against `true` and `1` of the class."""
    strict = parameters(dhcp=True, arpIgnore=1, mtu=1400, locks=["interface.mtu"])
    expression = 'device.driver == "net.podwire.dev" && device.attributes["net.podwire.dev"].interface == "up2"'
    stage.run(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "leased"},
            "spec": {
                "selectors": [{"cel": {"expression": expression}}],
                "config": [{"opaque": {"driver": "net.podwire.dev", "parameters": strict}}],
            },
        },
        claim("plain", class_="leased", dhcp=False, arpIgnore=0, addresses=["192.0.2.33/24"]),
        stage.pod("plain", "plain"),
    )
    [link] = stage.look("plain", "-4 addr show dev net1")
    assert (link["mtu"], link["addr_info"][0]["local"]) == (1400, "192.0.2.33")
    assert stage.inside("plain", "cat /proc/sys/net/ipv4/conf/net1/arp_ignore") == "0"
    stage.deleted("plain")
    stage.cluster.apply(claim("locked", class_="leased", dhcp=False, mtu=9000), stage.pod("locked", "locked"))
    assert "interface.mtu" in stage.waits("locked", "FailedPrepareDynamicResources", "leased")
    stage.deleted("locked")


SERVER_NEEDED = pytest.mark.skipif(shutil.which("busybox") is None, reason="there is no DHCP server")


@contextlib.contextmanager
def dhcp_server(stage, link, address, seconds):
    """Has one address to give, and says that the way out is by itself."""
    config, leases = stage.directory / f"udhcpd-{address}.conf", stage.directory / f"udhcpd-{address}.leases"
    leases.touch()
    config.write_text(
        f"start {address}\nend {address}\ninterface {link}\nlease_file {leases}\npidfile {config}.pid\nmin_lease 1\n"
        f"option subnet 255.255.255.0\noption router 10.77.0.1\noption lease {seconds}\n"
    )
    words = stage.cluster.space.command("nsenter", f"--net={stage.netns}", "busybox", "udhcpd", "-f", config)
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as server:
        try:
            yield
        finally:
            server.kill()


@SERVER_NEEDED
def test_a_lease_is_taken_before_the_pod_starts_and_given_back_when_it_has_gone(stage, claim):
    stage.veth("dh1", far="10.77.0.1/24")
    stage.offered("dh1")
    before = stage.dump("dh1")
    with dhcp_server(stage, "dh1p", "10.77.0.50", 3600):
        for name in ("leased", "again"):  # there is one address: the second has it when the first gave it back
            stage.run(claim(name, "dh1", dhcp=True), stage.pod(name, name))
            assert stage.claimed_devices(name, "True", "Attached")[0]["networkData"]["ips"] == ["10.77.0.50/24"]
            assert stage.inside(name, "ping -c 1 -W 20 -I net1 10.77.0.1")
            stage.deleted(name)
    stage.as_before(before, "dh1")
    stage.never_bare("leased", "again")
    stage.batch("link delete dh1")


@SERVER_NEEDED
def test_a_changed_dhcp_lease_changes_the_pods_address_and_is_reported(stage, claim):
    stage.veth("dh2", far="10.77.0.1/24")
    stage.offered("dh2")
    before = stage.dump("dh2")
    file = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/moving/nic/net.podwire.dev-metadata.json"
    with dhcp_server(stage, "dh2p", "10.77.0.60", 4):
        stage.run(claim("moving", "dh2", dhcp=True), stage.pod("moving", "moving"))
        assert "10.77.0.60/24" in stage.inside("moving", f"cat {file}")

    def there():
        [device] = stage.claimed_devices("moving", "True", "Attached")
        return device["networkData"]["ips"] == ["10.77.0.70/24"]

    with dhcp_server(stage, "dh2p", "10.77.0.70", 3600):
        stage.cluster.eventually(there, "the pod has the address of its new server", stage.logs)
        [link] = stage.look("moving", "-4 addr show dev net1")
        assert [address["local"] for address in link["addr_info"]] == ["10.77.0.70"]
        assert stage.inside("moving", "ping -c 1 -W 20 -I net1 10.77.0.1")
        output = stage.inside("moving", f"cat {file}")
        assert ("10.77.0.70/24" in output, "10.77.0.60/24" in output) == (True, False)
        assert "DHCPLeaseLost" in stage.events("moving")
        stage.deleted("moving")
    stage.as_before(before, "dh2")
    stage.never_bare("moving")
    stage.batch("link delete dh2")
