"""Records that are lost, damaged, or of a newer podwire: owner tags are enough for DEL, GC and the next ADD."""

import json
from itertools import product

import pytest

from podwire.linux.net.network import KernelNetwork
from tests.cniplugins.support import Refused

KINDS = ("bridge", "ptp", "macvlan", "host-device")
DAMAGES = {
    "missing": None,
    "empty": lambda _text: "",
    "truncated": lambda text: text[: len(text) // 2],
    "garbage": lambda _text: '{"network": 5, "token": []}',
    "of a newer format": lambda text: json.dumps(json.loads(text) | {"format": 99}),
}
RECOVERIES = ("DEL", "DEL without the namespace", "GC", "ADD")
REFUSED = ("of a newer format", "ADD")
"""The attachment may be in use: `test_gc.py` checks that ADD is an error."""


def damage(host, how, id_="a"):
    """Damages the records of all plugins of a pod."""
    paths = [*host.records.glob(f"*/net@{id_}@eth0")]
    assert paths
    for path in paths:
        text = path.read_text()
        path.unlink()
        if DAMAGES[how] is not None:
            path.write_text(DAMAGES[how](text))


@pytest.mark.parametrize("way", ["in process", "daemon"])
@pytest.mark.parametrize(("damaged", "how"), [pair for pair in product(DAMAGES, RECOVERIES) if pair != REFUSED])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_an_attachment_whose_records_are_unusable(hosts, network, kind, damaged, how, way):
    def tried(host):
        host.way = way
        there = network(host, kind)
        for id_ in "ab":
            there.begin(id_)
            there.add(id_)
        damage(host, damaged)
        if how == "ADD":
            for at in range(len(there.configs("a"))):
                there.results["a"][at] = host.add("a", there.configs("a")[at] | previous(there, at))
            there.check("a")
            there.delete("a")
        else:
            if (how, kind) == ("GC", "host-device"):
                return_device(host)
            there.recover(how)
        there.settled(f"{how} with records that are {damaged}")

    hosts(tried)


def return_device(host):
    """As the kernel does with hardware when a namespace ends: it comes back under the name that it had there."""
    with KernelNetwork(host.namespaces.path("a")) as pod:
        pod.links.move(pod.links.get("eth0").ifindex, "/proc/thread-self/ns/net", "eth0")


def previous(network, at):
    return {"prevResult": network.results["a"][at - 1]} if at else {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damaged", ["truncated", "missing"])
def test_executables_release_by_owner_tags(hosts, network, programs, kind, damaged):
    """Without the daemon, and without prevResult."""

    def tried(host):
        there = network(host, kind)
        there.begin("a")
        there.add("a")
        damage(host, damaged)
        host.way = "program"
        for config in reversed(there.configs("a")):
            host.delete("a", config)
        there.settled(f"DEL with records that are {damaged}")

    hosts(tried)


@pytest.mark.parametrize("damaged", ["truncated", "missing", "of a newer format"])
@pytest.mark.parametrize("kind", KINDS)
def test_check_reports_an_unusable_record(hosts, network, kind, damaged):
    def tried(host):
        there = network(host, kind)
        there.begin("a")
        there.add("a")
        damage(host, damaged)
        for config in there.configs("a"):
            if (damaged, config["type"]) == ("missing", "tuning"):
                host.check("a", config, there.results["a"][-1])  # compares the values, as after a take-over
                continue
            with pytest.raises(Refused) as refusal:
                host.check("a", config, there.results["a"][-1])
            assert refusal.value.code in (3, 5, 101), refusal.value.error
        there.delete("a")
        there.settled("CHECK, then DEL")

    hosts(tried)


def test_host_port_of_a_deleted_pod_is_closed_although_its_record_is_torn(hosts, network, serving, seen):
    """Otherwise it would lead to the next pod with the address."""

    def tried(host):
        config = host.bridge("10.88.0.0/24", ipMasq=True)
        pod = host.pod("a")
        result = host.add("a", config)
        ports = host.portmap(result, {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"})
        host.add("a", ports)
        with host.outside() as outside:
            with serving(pod, 80) as server:
                assert seen(server, outside, "192.0.2.1", 8080) is not None
            damage(host, "truncated")
            host.delete("a", {key: value for key, value in ports.items() if key not in ("prevResult", "runtimeConfig")})
            host.delete("a", config)
            other = host.pod("b")
            address = result["ips"][0]["address"].partition("/")[0]
            host.add("b", config, CNI_ARGS=f"IgnoreUnknown=1;IP={address}")
            with serving(other, 80) as server:
                assert seen(server, outside, "192.0.2.1", 8080) is None

    hosts(tried)


def test_host_port_of_a_living_pod_is_not_given_away_with_its_torn_record(hosts):
    def tried(host):
        config = host.bridge("10.88.0.0/24")
        mapping = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
        for id_ in "ab":
            host.pod(id_)
        results = {id_: host.add(id_, config) for id_ in "ab"}
        host.add("a", host.portmap(results["a"], mapping))
        for path in host.records.glob("portmap/*"):
            path.write_text("{")
        with pytest.raises(Refused, match="host port tcp 8080 belongs to a eth0"):
            host.add("b", host.portmap(results["b"], mapping))
        for path in host.records.glob("*/net@a@*"):
            path.unlink()
        host.add("b", host.portmap(results["b"], mapping))

    hosts(tried)


def test_device_has_its_name_again_without_its_record(hosts, network):
    def tried(host):
        there = network(host, "host-device")
        there.begin("a")
        there.add("a")
        damage(host, "missing")
        there.delete("a")
        with KernelNetwork() as here:
            device = here.links.get("dev-a")
        assert (device.up, device.alias) == (True, "")

    hosts(tried)
