"""tuning, on the pod's own kernel parameters and interface."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from podwire.cniplugins.tuning import plugin as tuning
from podwire.cniplugins.tuning.settings import parse_settings
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.values import Veth
from podwire.protocols.cni.config import plugin_config
from podwire.protocols.cni.errors import CniError
from podwire.protocols.cni.verbs import Invocation

MAC = "02:11:22:33:44:55"
FILTER = "net/ipv4/conf/eth0/arp_filter"
ALL = {"mac": MAC, "mtu": 1300, "promisc": True, "allmulti": True, "txQLen": 77}
SYSCTL = {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "500"}


@pytest.fixture
def config(host):
    """A pod with a link, and the configuration that tuning gets for it."""

    def make(pod="a", **keys):
        host.pod(pod)
        configuration = {"cniVersion": "1.1.0", "name": "net", "type": "tuning", "dataDir": str(host.records)}
        return configuration | {"prevResult": host.add(pod, host.bridge())} | keys

    return make


def seen(host, pod="a"):
    with KernelNetwork(host.namespaces.path(pod)) as network:
        link = network.links.get("eth0")
    sysctls = KernelSysctls(host.namespaces.path(pod))
    attributes = (link.mac, link.mtu, link.promiscuous, link.all_multicast, link.queue)
    return *attributes, sysctls.read(FILTER), sysctls.read("net.core.somaxconn")


@pytest.mark.parametrize("way", ["in process", "program", "daemon"])
def test_settings_are_applied_checked_and_restored(host, config, way):
    configuration = config(**ALL, sysctl=SYSCTL)
    before = seen(host)
    result = host.add("a", configuration)
    assert seen(host) == (MAC, 1300, True, True, 77, "1", "500")
    interface = result["interfaces"][2]
    assert (interface["mac"], interface["mtu"]) == (MAC, 1300)
    assert result["interfaces"][:2] == configuration["prevResult"]["interfaces"][:2]
    host.check("a", configuration, result)
    host.check("a", host.bridge(), result)
    host.delete("a", configuration)
    assert seen(host) == before
    assert list(host.records.glob("tuning/*")) == []
    host.delete("a", configuration)


def test_repeated_add_keeps_the_first_values(host, config):
    configuration = config(**ALL, sysctl=SYSCTL)
    before = seen(host)
    assert host.add("a", configuration) == host.add("a", configuration)
    host.add("a", configuration | {"mtu": 1280, "sysctl": {}})
    assert seen(host)[1:] == (1280, True, True, 77, before[5], before[6])
    host.delete("a", configuration)
    assert seen(host) == before


def test_nothing_to_tune_has_no_record(host, config):
    configuration = config(mtu=0, promisc=False, sysctl={})
    assert host.add("a", configuration) == configuration["prevResult"]
    host.check("a", configuration, configuration["prevResult"])
    assert list(host.records.glob("tuning/*")) == []


@pytest.mark.parametrize("lost", ["the namespace", "its path", "prevResult"])
def test_del_needs_only_the_ids(host, config, lost):
    configuration = config(**ALL, sysctl=SYSCTL)
    host.add("a", configuration)
    if lost == "the namespace":
        host.namespaces.remove("a")
    bare = {key: configuration[key] for key in ("cniVersion", "name", "type", "dataDir")}
    host.delete("a", bare, None if lost == "prevResult" else "")
    assert list(host.records.glob("tuning/*")) == []


def test_del_does_not_touch_another_pod_at_the_same_path(host, config):
    configuration = config(mtu=1300)
    host.add("a", configuration)
    host.namespaces.remove("a")
    path = host.pod("a")
    with KernelNetwork() as here:
        here.links.add(Veth("x0", "eth0", peer_netns=path, mtu=1234))
    host.delete("a", configuration)
    assert seen(host)[1] == 1234


def test_del_does_not_touch_another_interface_of_the_name(host, config):
    configuration = config(mtu=1300)
    host.add("a", configuration)
    path = host.namespaces.path("a")
    with KernelNetwork(path) as pod, KernelNetwork() as here:
        pod.links.delete("eth0")
        here.links.add(Veth("x0", "eth0", peer_netns=path, peer_index=77, mtu=1234))
    host.delete("a", configuration)
    assert seen(host)[1] == 1234


def test_gc_releases_invalid_attachments(host, config):
    first, second = config("a", mtu=1300), config("b", mtu=1300)
    host.add("a", first)
    host.add("b", second)
    valid = {"cni.dev/valid-attachments": [{"containerID": "b", "ifname": "eth0"}]}
    assert host.call("GC", "", first | valid, "") is None
    assert [path.name for path in host.records.glob("tuning/*")] == ["net@b@eth0"]
    assert (seen(host, "a")[1], seen(host, "b")[1]) == (1500, 1300)
    assert host.call("STATUS", "", {key: first[key] for key in ("cniVersion", "name", "type")}, "") is None


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        pytest.param({"mtu": 1400}, "mtu of eth0 is 1400", id="mtu"),
        pytest.param({"mac": "02:00:00:00:00:01"}, "mac of eth0", id="mac"),
        pytest.param({"promiscuous": False}, "promiscuous of eth0", id="promisc"),
        pytest.param({"all_multicast": False}, "all_multicast of eth0", id="allmulti"),
        pytest.param({"queue": 5}, "queue of eth0", id="txQLen"),
    ],
)
def test_check_fails_for_a_changed_setting(host, config, refused, change, reported):
    wanted = config(**ALL)
    result = host.add("a", wanted)
    with KernelNetwork(host.namespaces.path("a")) as pod:
        pod.links.change("eth0", **change)
    with refused(101, reported):
        host.check("a", wanted, result)


def test_check_fails_for_sysctl_and_missing_link(host, config, refused):
    wanted = config(sysctl=SYSCTL)
    with refused(101, "arp_filter is '0', expected '1'"):
        host.check("a", wanted, wanted["prevResult"])
    host.add("a", wanted)
    KernelSysctls(host.namespaces.path("a")).write(FILTER, "0")
    with refused(101, "arp_filter is '0', expected '1'"):
        host.check("a", wanted, wanted["prevResult"])
    wanted = wanted | {"sysctl": {}, "mtu": 1500}
    with KernelNetwork(host.namespaces.path("a")) as pod:
        pod.links.delete("eth0")
    with refused(101, "link eth0 does not exist"):
        host.check("a", wanted, wanted["prevResult"])


def test_failed_add_restores_everything(host, config, refused):
    wanted = config(sysctl=SYSCTL | {"net.core.rmem_default": "no number"})
    before = seen(host)
    with refused(102, "rmem_default"):
        host.add("a", wanted)
    assert seen(host) == before
    with refused(102, "no_such"):
        host.add("a", wanted | {"sysctl": {"net.ipv4.no_such": "1"}})
    with refused(102, "eth0"):
        host.add("a", wanted | {"sysctl": {}, "mac": "ff:ff:ff:ff:ff:ff"})
    assert seen(host) == before
    assert list(host.records.glob("tuning/*")) == []


def test_tuning_needs_prev_result(host, config, refused):
    wanted = config(mtu=1300)
    del wanted["prevResult"]
    for verb in ("ADD", "CHECK"):
        with refused(7, "prevResult"):
            host.call(verb, "a", wanted)


@pytest.mark.parametrize(
    "point", ["cni.tuning-recorded", "cni.tuning-written", "cni.tuning-added", "cni.tuning-detached"]
)
@pytest.mark.parametrize("action", ["kill", "1*error(on fire)->off"])
def test_del_restores_after_a_failed_add(host, config, point, action):
    wanted = config(**ALL, sysctl=SYSCTL)
    before = seen(host)
    verb = "DEL" if point == "cni.tuning-detached" else "ADD"
    if verb == "DEL":
        host.add("a", wanted)
    process = host.run(verb, "a", wanted, PODWIRE_FAILPOINTS=f"{point}={action}")
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if action == "kill" else 1)
    if action != "kill":
        assert json.loads(stdout)["code"] == 999
    host.delete("a", wanted)
    assert seen(host) == before
    assert list(host.records.glob("tuning/*")) == []


def parsed(cni_args="", **keys):
    raw = {"cniVersion": "1.1.0", "name": "net", "type": "tuning"} | keys
    return parse_settings(plugin_config(json.dumps(raw).encode()), Invocation("ADD", ifname="eth0.1", args=cni_args))


@pytest.mark.parametrize(
    "name",
    [
        "kernel.shmmax",
        "net/../kernel/shmmax",
        "net...kernel",
        "/net/core/somaxconn",
        "../net/core/somaxconn",
        "netfoo",
        "net",
        "",
        "net.core.so max",
        "net.core.x\0y",
    ],
)
def test_sysctl_outside_the_network_namespace_is_an_error(name):
    with pytest.raises(CniError, match="sysctl") as caught:
        parsed(sysctl={name: "1"})
    assert caught.value.code == 7


def test_interface_name_with_a_dot_is_one_component():
    wanted = parsed(sysctl={"net.ipv4.conf.IFNAME.forwarding": "1", "net/ipv6/conf/IFNAME/forwarding": "0"})
    assert wanted.sysctl == {"net/ipv4/conf/eth0.1/forwarding": "1", "net/ipv6/conf/eth0.1/forwarding": "0"}


def test_one_sysctl_in_two_spellings_is_an_error():
    with pytest.raises(CniError, match="duplicated key"):
        parsed(sysctl={"net.core.somaxconn": "1", "net/core/somaxconn": "2"})


def test_allow_list_limits_the_sysctls(host, config, refused, monkeypatch, tmp_path):
    allowed = tmp_path / "allowlist.conf"
    allowed.write_text("\n  ^net\\.core\\.somax.*$  \n\n")
    monkeypatch.setattr(tuning, "ALLOWLIST", str(allowed))
    wanted = config(sysctl={"net.core.somaxconn": "500"})
    host.add("a", wanted)
    with refused(7, "arp_filter is not allowed"):
        host.add("a", wanted | {"sysctl": SYSCTL})
    allowed.write_text("(")
    with refused(7, "not a pattern"):
        host.add("a", wanted)


@pytest.mark.parametrize(
    ("keys", "mac"),
    [
        pytest.param({"mac": "02:00:00:00:00:01"}, "02:00:00:00:00:01", id="the configuration"),
        pytest.param(
            {"mac": "02:00:00:00:00:01", "cni_args": "MAC=02:00:00:00:00:0B"}, "02:00:00:00:00:0b", id="CNI_ARGS"
        ),
        pytest.param(
            {"cni_args": "MAC=02:00:00:00:00:0b", "runtimeConfig": {"Mac": "02:00:00:00:00:0c"}},
            "02:00:00:00:00:0c",
            id="the runtime",
        ),
        pytest.param(
            {"runtimeConfig": {"mac": "02:00:00:00:00:0c"}, "args": {"cni": {"mac": "02:00:00:00:00:0d"}}},
            "02:00:00:00:00:0d",
            id="args",
        ),
    ],
)
def test_mac_address_sources_have_an_order(keys, mac):
    assert parsed(**keys).link == {"mac": mac}


def test_args_precede_the_configuration():
    keys = {"mtu": 1300, "promisc": True, "txQLen": 5, "sysctl": {"net.a": "1", "net.b": "2"}}
    more = {"mtu": 1400, "promisc": False, "allmulti": False, "sysctl": {"net/a": "3"}, "txQLen": None}
    wanted = parsed(**keys, args={"cni": more})
    assert wanted.link == {"mtu": 1400, "all_multicast": False, "queue": 5}
    assert wanted.sysctl == {"net/a": "3", "net/b": "2"}


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"mac": "nonsense"}, 7),
        ({"mtu": -1}, 7),
        ({"mtu": 70000}, 7),
        ({"mtu": "1500"}, 6),
        ({"txQLen": -1}, 7),
        ({"promisc": "yes"}, 6),
        ({"allmulti": 1}, 6),
        ({"sysctl": {"net.core.somaxconn": 1}}, 6),
    ],
    ids=str,
)
def test_invalid_settings_are_errors(keys, code):
    with pytest.raises(CniError, match=next(iter(keys))) as caught:
        parsed(**keys)
    assert caught.value.code == code


def test_reference_plugin_makes_the_same(host, config, tmp_path):
    """Its result, and the same kernel; promisc, mac and the others by their names."""
    places = (Path("/usr/lib/cni"), Path(__file__).parents[2] / ".venv/debian/usr/lib/cni")
    theirs = next(place for place in places if (place / "tuning").exists())
    keys = {"mac": MAC, "mtu": 1300, "promisc": True, "allmulti": True, "sysctl": SYSCTL, "cniVersion": "1.0.0"}
    found = []
    for pod, programs in (("a", host.programs), ("b", theirs)):
        configuration = config(pod, **keys)
        configuration["dataDir"] = str(tmp_path / pod)
        configuration["prevResult"]["cniVersion"] = "1.0.0"
        environment = host.environment("ADD", pod)
        done = subprocess.run(
            [programs / "tuning"],
            input=json.dumps(configuration).encode(),
            env=environment,
            capture_output=True,
            check=True,
        )
        (inside,) = (interface for interface in json.loads(done.stdout)["interfaces"] if interface.get("sandbox"))
        found.append((inside["name"], inside["mac"], seen(host, pod)))
    assert found[0] == found[1]
