"""bandwidth: what it asks of the kernel, and real bytes over real links."""

import json
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.cniplugins.bandwidth.settings import Limit, Settings, bucket, parse_settings
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import visit
from podwire.protocols.cni.config import plugin_config
from podwire.protocols.cni.errors import CniError

DUAL = ("10.88.0.0/24", "fd88::/64")
RATE = 4_000_000
BOTH = {"ingressRate": RATE, "ingressBurst": 400_000, "egressRate": RATE, "egressBurst": 400_000}
AMOUNT = 1_000_000
"""Two seconds at that rate."""
PATIENCE = 60


@pytest.fixture
def config(host):
    """A pod with a link, and the configuration that bandwidth gets for it."""

    def make(pod="a", **keys):
        host.pod(pod)
        configuration = {"cniVersion": "1.1.0", "name": "net", "type": "bandwidth", "dataDir": str(host.records)}
        return configuration | {"prevResult": host.add(pod, host.bridge(*DUAL))} | keys

    return make


def ifbs():
    with KernelNetwork() as here:
        return [link for link in here.links.list() if link.kind == "ifb"]


def outside(config):
    with KernelNetwork() as here:
        return here.links.get(config["prevResult"]["interfaces"][1]["name"]).ifindex


def traces(host, config):
    """Leftovers of shaping."""
    with KernelNetwork() as here:
        index = outside(config)
        hooks = (here.traffic.shaped(index), here.traffic.hooked(index))
    return ifbs(), hooks, [path.name for path in host.records.glob("bandwidth/*")]


def tc(*arguments):
    return subprocess.run(["tc", *arguments], capture_output=True, text=True, check=True).stdout


CLEAN = ([], (None, False), [])


@pytest.mark.parametrize("way", ["in process", "program", "daemon"])
def test_both_directions_are_limited_checked_and_released(host, config, way):
    configuration = config(**BOTH)
    result = host.add("a", configuration)
    (ifb,) = ifbs()
    assert result["interfaces"][:3] == configuration["prevResult"]["interfaces"]
    assert result["interfaces"][3] == {"name": ifb.name, "mac": ifb.mac, "mtu": 1500}
    assert ifb.name.startswith("bwp")
    assert ifb.alias.endswith(" net/a/eth0")
    with KernelNetwork() as here:
        buckets = [here.traffic.shaped(index) for index in (outside(configuration), ifb.ifindex)]
        assert here.traffic.redirected(outside(configuration)) == ifb.ifindex
    assert [(bucket.rate, bucket.limit) for bucket in buckets] == [(500_000, 62_500)] * 2
    host.check("a", configuration, result)
    host.delete("a", configuration | {"prevResult": result})
    assert traces(host, configuration) == CLEAN
    host.delete("a", configuration)


def arriving(server, client, amount):
    """How many bytes per second arrive, when more are sent than may pass; the clock runs from the first byte."""
    accepted, _ = server.accept()
    accepted.settimeout(PATIENCE)

    def pour():
        with client, suppress(OSError):  # until nobody listens any more
            while True:
                client.sendall(bytes(16384))

    pouring = threading.Thread(target=pour)
    pouring.start()
    with accepted:
        accepted.recv(1)
        began, left = time.monotonic(), amount
        while left > 0:
            left -= len(accepted.recv(1 << 16))
        took = time.monotonic() - began
    pouring.join(PATIENCE)
    return amount / took


def flow(receiver, sender, address, amount):
    """From one namespace to an address in another."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with visit(receiver):
        server = socket.socket(family)
    with visit(sender):
        client = socket.socket(family)
    with server:
        server.bind((address, 5001))
        server.listen()
        server.settimeout(PATIENCE)
        client.settimeout(PATIENCE)
        client.connect((address, 5001))
        return arriving(server, client, amount)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("pod_does", ["receives", "sends"])
def test_limit_applies_to_one_direction_only(host, config, pod_does, family):
    document = {"a": config("a"), "b": config("b")}
    keys = {key: value for key, value in BOTH.items() if key.startswith("in" if pod_does == "receives" else "e")}
    host.add("a", document["a"] | keys)
    address = {
        pod: str(ip_interface(document[pod]["prevResult"]["ips"][family == 6]["address"]).ip) for pod in document
    }
    path = {pod: host.namespaces.path(pod) for pod in document}
    to, by = ("a", "b") if pod_does == "receives" else ("b", "a")
    assert 0.4 < flow(path[to], path[by], address[to], AMOUNT) / (RATE / 8) < 1.6
    assert flow(path[by], path[to], address[by], 8 * AMOUNT) / (RATE / 8) > 2


@pytest.mark.parametrize("key", ["shapedSubnets", "unshapedSubnets"])
@pytest.mark.parametrize("pod_does", ["receives", "sends"])
def test_limit_applies_to_some_networks_only(host, config, pod_does, key):
    """The other pod's IPv4 address is in the networks, its IPv6 address is not."""
    document = {"a": config("a"), "b": config("b")}
    address = {
        pod: [str(ip_interface(ip["address"]).ip) for ip in document[pod]["prevResult"]["ips"]] for pod in document
    }
    limited = document["a"] | BOTH | {key: [f"{address['b'][0]}/31", "2001:db8::/32"]}
    result = host.add("a", limited)
    host.check("a", limited, result)
    path = {pod: host.namespaces.path(pod) for pod in document}
    to, by = ("a", "b") if pod_does == "receives" else ("b", "a")
    slow, quick = address[to] if key == "shapedSubnets" else reversed(address[to])
    assert 0.4 < flow(path[to], path[by], slow, AMOUNT) / (RATE / 8) < 1.6
    assert flow(path[to], path[by], quick, 8 * AMOUNT) / (RATE / 8) > 2
    host.delete("a", limited | {"prevResult": result})
    assert traces(host, document["a"]) == CLEAN


def test_check_finds_a_limit_for_other_networks(host, config, refused):
    configuration = config(**BOTH, shapedSubnets=["10.9.0.0/16"])
    result = host.add("a", configuration)
    name = configuration["prevResult"]["interfaces"][1]["name"]
    tc("filter", "del", "dev", name, "parent", "7077:", "prio", "16")
    with refused(101, "the limit of veth.* is for other networks"):
        host.check("a", configuration, result)
    tc("qdisc", "del", "dev", name, "root")
    with refused(101, "is no longer limited"):
        host.check("a", configuration, result)


def test_networks_of_the_configuration_are_for_the_limits_of_the_runtime():
    runtime = {"bandwidth": {"ingressRate": 8000, "ingressBurst": 8000, "shapedSubnets": ["10.0.0.0/8"]}}
    raw = {"cniVersion": "1.0.0", "name": "net", "type": "bandwidth", "runtimeConfig": runtime}
    own = plugin_config(json.dumps(raw | {"unshapedSubnets": ["10.1.2.3/16", "10.1.0.0/16"]}).encode())
    settings = parse_settings(own)
    assert (settings.ingress, settings.networks, settings.limited) == (
        Limit(8000, 8000),
        (ip_network("10.1.0.0/16"),),
        False,
    )
    settings = parse_settings(plugin_config(json.dumps(raw).encode()))
    assert (settings.networks, settings.limited) == ((ip_network("10.0.0.0/8"),), True)


def test_unset_burst_of_a_runtime_becomes_a_usable_default(host, config):
    numbers = {"IngressRate": RATE, "IngressBurst": (1 << 32) - 1, "EgressRate": RATE, "EgressBurst": (1 << 32) - 1}
    configuration = config(runtimeConfig={"bandwidth": numbers})
    result = host.add("a", configuration)
    host.check("a", configuration, result)
    with KernelNetwork() as here:
        assert here.traffic.shaped(outside(configuration)).burst == pytest.approx(50_000, abs=64)


def test_pod_without_limits_has_no_record(host, config):
    configuration = config(runtimeConfig={"bandwidth": dict.fromkeys(BOTH, 0)})
    assert host.add("a", configuration) == configuration["prevResult"]
    host.check("a", configuration, configuration["prevResult"])
    assert traces(host, configuration) == CLEAN


def test_repeated_add_applies_the_newest_limits_once(host, config):
    configuration = config(**BOTH)
    host.add("a", configuration)
    newer = configuration | {"ingressRate": 2 * RATE}
    result = host.add("a", newer)
    host.check("a", newer, result)
    assert len(ifbs()) == 1
    host.add("a", configuration | dict.fromkeys(BOTH, 0))
    assert traces(host, configuration) == CLEAN


def test_two_interfaces_of_a_pod_have_separate_limits(host, config):
    first = config(**BOTH)
    second = first | {"prevResult": host.add("a", host.bridge(*DUAL), CNI_IFNAME="eth1")}
    host.add("a", first)
    host.add("a", second, CNI_IFNAME="eth1")
    assert len(ifbs()) == 2
    host.delete("a", second, CNI_IFNAME="eth1")
    assert len(ifbs()) == 1
    host.check("a", first, first["prevResult"])


@pytest.mark.parametrize("lost", ["the namespace", "prevResult"])
def test_del_needs_only_the_ids(host, config, lost):
    configuration = config(**BOTH)
    host.add("a", configuration)
    if lost == "the namespace":
        host.namespaces.remove("a")
    bare = {key: configuration[key] for key in ("cniVersion", "name", "type", "dataDir")}
    host.delete("a", bare, "")
    assert ifbs() == []
    assert list(host.records.glob("bandwidth/*")) == []


def test_gc_releases_invalid_attachments(host, config):
    configuration = config(**BOTH)
    config("b")
    host.add("a", configuration)
    host.add("b", configuration | {"prevResult": host.add("b", host.bridge(*DUAL))})
    valid = {"cni.dev/valid-attachments": [{"containerID": "b", "ifname": "eth0"}]}
    assert host.call("GC", "", configuration | valid, "") is None
    assert [ifb.alias.split()[-1] for ifb in ifbs()] == ["net/b/eth0"]
    assert [path.name for path in host.records.glob("bandwidth/*")] == ["net@b@eth0"]


def test_gc_removes_an_ifb_without_a_record_by_its_tag(host, config):
    configuration = config(**BOTH)
    host.add("a", configuration)
    for path in host.records.glob("bandwidth/*"):
        path.unlink()
    assert host.call("GC", "", configuration | {"cni.dev/valid-attachments": []}, "") is None
    assert ifbs() == []
    assert host.call("STATUS", "", configuration, "") is None


@pytest.mark.parametrize(
    ("spoil", "reported"),
    [
        pytest.param(lambda here, veth, _ifb: here.traffic.unshape(veth), "is no longer limited", id="ingress"),
        pytest.param(lambda here, _veth, ifb: here.traffic.unshape(ifb), "is no longer limited", id="egress"),
        pytest.param(lambda here, veth, _ifb: here.traffic.unredirect(veth), "through bwp", id="detour"),
        pytest.param(lambda here, _veth, ifb: here.links.delete(ifb), "link bwp", id="ifb"),
        pytest.param(lambda here, _veth, ifb: here.links.change(ifb, up=False), "is down", id="down"),
    ],
)
def test_check_fails_for_each_missing_part(host, config, refused, spoil, reported):
    wanted = config(**BOTH)
    result = host.add("a", wanted)
    (ifb,) = ifbs()
    with KernelNetwork() as here:
        spoil(here, outside(wanted), ifb.ifindex)
    with refused(101, reported):
        host.check("a", wanted, result)
    host.add("a", wanted)
    host.check("a", wanted, result)
    host.delete("a", wanted)
    assert traces(host, wanted) == CLEAN


@pytest.mark.parametrize(
    ("foreign", "reported"),
    [
        pytest.param(("root", "handle", "9:", "htb"), "root qdisc of another program", id="a root qdisc"),
        pytest.param(("clsact",), "ingress qdisc of another program", id="an ingress qdisc"),
    ],
)
def test_foreign_qdiscs_are_not_touched(host, config, refused, foreign, reported):
    wanted = config(**BOTH)
    name = wanted["prevResult"]["interfaces"][1]["name"]
    tc("qdisc", "add", "dev", name, *foreign)
    before = [line.split()[:3] for line in tc("qdisc", "show", "dev", name).splitlines()]
    with refused(100, reported):
        host.add("a", wanted)
    assert [line.split()[:3] for line in tc("qdisc", "show", "dev", name).splitlines()] == before
    assert ifbs() == []
    assert list(host.records.glob("bandwidth/*")) == []


def test_link_without_a_veth_peer_is_an_error(host, config, refused):
    wanted = config(**BOTH)
    result = wanted["prevResult"]
    with refused(7, "prevResult does not contain veth"):
        host.add(
            "a", wanted | {"prevResult": result | {"interfaces": [*result["interfaces"][::2], result["interfaces"][2]]}}
        )
    with refused(7, "lo has no veth peer"):
        host.add("a", wanted, CNI_IFNAME="lo")
    del wanted["prevResult"]
    for verb in ("ADD", "CHECK"):
        with refused(7, "prevResult: missing"):
            host.call(verb, "a", wanted)


POINTS = ["recorded", "ingress", "ifb", "added", "unlimited", "detached"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("action", ["kill", "1*error(on fire)->off"])
def test_del_removes_what_a_failed_add_left(host, config, point, action):
    wanted = config(**BOTH)
    verb = "DEL" if point in POINTS[-2:] else "ADD"
    if verb == "DEL":
        host.add("a", wanted)
    process = host.run(verb, "a", wanted, PODWIRE_FAILPOINTS=f"cni.bandwidth-{point}={action}")
    stdout, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == (-signal.SIGKILL if action == "kill" else 1)
    if action != "kill":
        assert json.loads(stdout)["code"] == 999
    host.delete("a", wanted)
    assert traces(host, wanted) == CLEAN


def parsed(**keys):
    return parse_settings(plugin_config(json.dumps({"cniVersion": "1.1.0", "name": "net", **keys}).encode()))


@pytest.mark.parametrize(
    ("keys", "settings"),
    [
        pytest.param({}, Settings(), id="nothing"),
        pytest.param({"ingressRate": 8000}, Settings(ingress=Limit(8000, 0)), id="a rate alone"),
        pytest.param(
            {"egressRate": 8000, "egressBurst": 99}, Settings(egress=Limit(8000, 99)), id="what is sent, with a burst"
        ),
        pytest.param(
            {"ingressRate": 8000, "runtimeConfig": {"bandwidth": {"ingressRate": 9000}}},
            Settings(ingress=Limit(8000, 0)),
            id="the configuration goes before the runtime",
        ),
        pytest.param(
            {"ingressRate": 8000, "ingressBurst": (1 << 32) - 1},
            Settings(ingress=Limit(8000, (1 << 32) - 1)),
            id="what an administrator writes is meant",
        ),
        pytest.param(
            {"runtimeConfig": {"bandwidth": {"EgressRate": 8000, "egressburst": (1 << 31) - 1, "INGRESSBURST": 0}}},
            Settings(egress=Limit(8000, 0)),
            id="in any spelling",
        ),
        pytest.param(
            {"runtimeConfig": {"bandwidth": {"ingressBurst": (1 << 32) - 1}}}, Settings(), id="no rate and no opinion"
        ),
    ],
)
def test_settings_are_parsed(keys, settings):
    assert parsed(**keys) == settings


@pytest.mark.parametrize(
    ("keys", "code", "reported"),
    [
        ({"ingressBurst": 8000}, 7, "if burst is set, rate must also be set"),
        ({"egressRate": -1}, 7, "egressRate: -1"),
        ({"egressRate": 7}, 7, "less than a byte"),
        ({"egressRate": "1M"}, 6, "egressRate"),
        ({"ingressRate": 8000, "ingressBurst": 8 << 32}, 7, "more than 4 GB"),
        ({"ingressRate": 8000, "unshapedSubnets": ["10.0.0.0"]}, 7, r"bad subnet .10\.0\.0\.0. provided"),
        ({"runtimeConfig": {"bandwidth": {"ShapedSubnets": ["10.0.0.0/33"]}}}, 7, r"shapedSubnets\[0\]"),
        ({"shapedSubnets": ["10.0.0.0/8"], "unshapedSubnets": ["::/0"]}, 7, "cannot be both specified"),
    ],
    ids=str,
)
def test_invalid_settings_are_errors(keys, code, reported):
    with pytest.raises(CniError, match=reported) as caught:
        parsed(**keys)
    assert caught.value.code == code


@given(st.integers(8, 1 << 50), st.integers(0, (1 << 35) - 16), st.integers(68, 65535))
def test_bucket_always_passes_the_largest_packet(rate, burst, mtu):
    found = bucket(Limit(rate, burst), mtu)
    assert mtu + 14 < found.burst <= found.limit < 1 << 32
    assert found.rate == rate // 8


def test_reference_plugin_makes_the_same(host, config):
    """The same result but for names, and the same buckets."""
    places = (Path("/usr/lib/cni"), Path(__file__).parents[2] / ".venv/debian/usr/lib/cni")
    theirs = next(place for place in places if (place / "bandwidth").exists())
    found = []
    for pod, programs in (("a", host.programs), ("b", theirs)):
        configuration = config(pod, **BOTH, cniVersion="1.0.0")
        configuration["prevResult"]["cniVersion"] = "1.0.0"
        environment = host.environment("ADD", pod)
        done = subprocess.run(
            [programs / "bandwidth"],
            input=json.dumps(configuration).encode(),
            env=environment,
            capture_output=True,
            check=True,
        )
        result = json.loads(done.stdout)
        names = [result["interfaces"][at]["name"] for at in (1, 3)]
        kinds = [json.loads(tc("-j", "qdisc", "show", "dev", name)) for name in names]
        shown = [{item["kind"]: item["options"] for item in listed} for listed in kinds]
        found.append((names[1][:3], len(names[1]), len(result["interfaces"]), result["ips"][0]["interface"], shown))
    assert found[0] == found[1]
