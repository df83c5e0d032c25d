"""Behaviour that runtimes know of the reference plugins, and their words in errors on which some depend."""

import json
import re
from hashlib import sha512
from pathlib import Path

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Bridge
from tests.cniplugins.reference_errors import CASES, ON_PURPOSE, our_error, reference_error
from tests.cniplugins.support import Refused

HERE = "/proc/thread-self/ns/net"
PLACES = (Path("/usr/lib/cni"), Path(__file__).parents[2] / ".venv/debian/usr/lib/cni")
INTERNAL = 999
"""The reference's code for errors that have none of their own."""


@pytest.fixture(scope="session")
def reference():
    found = next((place for place in PLACES if (place / "bridge").exists()), None)
    assert found is not None, "scripts/setup unpacks the reference plugins"
    return found


def test_own_namespace_is_allowed_by_the_variable_for_it(host, refused):
    """As runtimes use it that run in the pod's namespace themselves."""
    config = {"cniVersion": "1.1.0", "name": "net", "type": "loopback"}
    for value in ("", "0", "no"):
        with refused(8, "is the namespace of the host"):
            host.call("ADD", "a", config, HERE, CNI_NETNS_OVERRIDE=value)
    for value in ("1", "true", "TRUE"):
        assert host.call("ADD", "a", config, HERE, CNI_NETNS_OVERRIDE=value)["interfaces"][0]["name"] == "lo"


def test_mac_address_of_an_existing_bridge_stays_as_pods_come_and_go(host):
    with KernelNetwork() as here:
        here.links.add(Bridge("cni0"))
        before = here.links.get("cni0").mac
        for id_, mac in (("a", "02:00:00:00:00:01"), ("b", "00:00:00:00:00:01")):
            host.pod(id_)
            host.add(id_, host.bridge())
            port = next(link for link in here.links.list() if link.master and link.name.startswith("veth"))
            here.links.change(port.ifindex, mac=mac)
            assert here.links.get("cni0").mac == before
        host.delete("a", host.bridge())
        assert here.links.get("cni0").mac == before


def test_disabled_container_interface_stays_down(host, refused):
    path = host.pod("a")
    config = host.bridge(isDefaultGateway=False, disableContainerInterface=True) | {"ipam": {}}
    result = host.add("a", config)
    with KernelNetwork(path) as pod, KernelNetwork() as here:
        assert not pod.links.get("eth0").up
        assert here.links.get(result["interfaces"][1]["name"]).up
    host.check("a", config, result)
    assert host.add("a", config) == result
    host.delete("a", config)
    assert host.left() == {}
    with refused(7, "cannot use IPAM when DisableContainerInterface flag is set"):
        host.add("a", host.bridge(disableContainerInterface=True))


@pytest.mark.parametrize("plugin", ["bridge", "ptp"])
def test_empty_list_of_dns_overrides_that_of_ipam(host, plugin):
    addresses = [{"address": "10.77.0.5/24", "gateway": "10.77.0.1"}]
    static = {"type": "static", "addresses": addresses, "dns": {"nameservers": ["10.77.0.53"], "search": ["x"]}}
    config = host.config(plugin) | {"ipam": static}
    for number, (dns, expected) in enumerate(
        [({}, static["dns"]), ({"nameservers": []}, {}), ({"options": []}, {}), ({"domain": "y"}, {"domain": "y"})]
    ):
        host.pod(f"a{number}")
        assert host.add(f"a{number}", config | {"dns": dns}).get("dns", {}) == expected
        host.delete(f"a{number}", config)


def test_destination_of_a_route_is_repeated_as_it_was_given(host):
    routes = [{"dst": "10.99.1.7/16"}, {"dst": "fd99::7/64", "gw": "fd88::9"}, {"dst": "10.98.0.0/16"}]
    config = host.bridge("10.88.0.0/24", "fd88::/64", isDefaultGateway=False)
    config["ipam"]["routes"] = routes
    path = host.pod("a")
    result = host.add("a", config)
    assert result["routes"] == routes
    with KernelNetwork(path) as pod:
        assert "10.99.0.0/16" in {str(route.destination) for route in pod.routes.list(4)}
    host.check("a", config, result)
    assert host.add("a", config) == result, "also from the record"


def test_sysctls_alone_need_no_interface(host):
    host.pod("a")
    config = {"cniVersion": "1.1.0", "name": "net", "type": "tuning", "dataDir": str(host.records)}
    config |= {"sysctl": {"net.ipv4.conf.all.log_martians": "1"}, "prevResult": {"cniVersion": "1.1.0"}}
    result = host.add("a", config)
    host.check("a", config, result)
    host.delete("a", config)
    assert host.left() == {}


def test_sysctl_that_is_given_twice_is_an_error(host, refused):
    host.pod("a")
    config = {"cniVersion": "1.1.0", "name": "net", "type": "tuning", "prevResult": {"cniVersion": "1.1.0"}}
    text = json.dumps(config | {"sysctl": {"net.core.somaxconn": "1", "X": "2"}}).replace("X", "net.core.somaxconn")
    with refused(7, "duplicated key net.core.somaxconn"):
        host.call("ADD", "a", text.encode(), plugin="tuning")


def test_delete_succeeds_for_a_sysctl_that_is_no_longer_allowed(host, monkeypatch, tmp_path):
    (tmp_path / "allowed").write_text("^net.core")
    monkeypatch.setattr("podwire.cniplugins.tuning.plugin.ALLOWLIST", str(tmp_path / "allowed"))
    host.pod("a")
    config = {"cniVersion": "1.1.0", "name": "net", "type": "tuning", "dataDir": str(host.records)}
    host.delete("a", config | {"sysctl": {"net.ipv4.conf.all.log_martians": "1"}})


def test_limits_of_two_interfaces_have_an_ifb_each(host):
    """The first has the name that the reference plugin gives it, so that it can delete the link."""
    path = host.pod("a")
    config = {"cniVersion": "1.1.0", "name": "net", "type": "bandwidth", "dataDir": str(host.records)}
    config |= {"egressRate": 8_000_000, "egressBurst": 8_000_000}
    names = []
    for ifname in ("eth0", "eth1"):
        result = host.add("a", host.bridge(), CNI_IFNAME=ifname)
        names.append(host.add("a", config | {"prevResult": result}, CNI_IFNAME=ifname)["interfaces"][-1]["name"])
    assert names[0] == "bwp" + sha512(b"neta").hexdigest()[:12]
    assert names[1] != names[0]
    for ifname in ("eth0", "eth1"):
        host.delete("a", config, path, CNI_IFNAME=ifname)
        host.delete("a", host.bridge(), path, CNI_IFNAME=ifname)
    assert host.left() == {}


STATIC = {"cniVersion": "1.1.0", "name": "net", "type": "static"}


@pytest.mark.parametrize(
    ("config", "env", "words"),
    [
        (STATIC, {}, "IPAM config missing 'ipam' key"),
        (
            STATIC | {"ipam": {"type": "static", "addresses": [{"address": "10.0.0.1"}]}},
            {},
            "the 'address' field is expected to be in CIDR notation, got: '10.0.0.1'",
        ),
        (
            STATIC | {"ipam": {"type": "static"}},
            {"CNI_ARGS": "IP=10.0.0.1"},
            "the 'ip' field is expected to be in CIDR notation, got: '10.0.0.1'",
        ),
        (
            STATIC | {"ipam": {"type": "static"}, "runtimeConfig": {"ips": ["10.0.0.1"]}},
            {},
            "an entry in the 'ips' field is NOT in CIDR notation, got: '10.0.0.1'",
        ),
        (
            STATIC
            | {"cniVersion": "0.2.0"}
            | {"ipam": {"type": "static", "addresses": [{"address": "10.0.0.1/8"}, {"address": "10.0.0.2/8"}]}},
            {},
            "CNI version 0.2.0 does not support more than 1 address per family",
        ),
        (
            {"cniVersion": "0.2.0", "name": "net", "type": "loopback", "prevResult": {"cniVersion": "0.3.0"}},
            {},
            "cannot convert: no valid IP addresses",
        ),
        ({"cniVersion": "1.1.0", "name": "net", "type": "host-device"}, {}, 'specify either "device", "hwaddr"'),
    ],
)
def test_errors_have_the_words_of_the_reference_plugins(host, config, env, words):
    host.pod("a")
    with pytest.raises(Refused, match=re.escape(words)):
        host.add("a", config, **env)


def test_verb_that_a_version_lacks_is_named(host, refused):
    host.pod("a")
    with refused(1, "config version does not allow CHECK"):
        host.call("CHECK", "a", host.bridge(cniVersion="0.3.1"))


def test_words_of_a_full_pool_and_of_a_requested_address(host, refused):
    config = {"cniVersion": "1.1.0", "name": "net", "type": "host-local", "ipam": host.bridge("10.88.0.0/30")["ipam"]}
    host.add("a", config)
    with refused(11, "no IP addresses available in range set: 10.88.0.1"):
        host.add("b", config)
    host.delete("a", config)
    with refused(7, "failed to allocate all requested IPs: 10.99.0.1"):
        host.add("b", config, CNI_ARGS="IP=10.99.0.1")


def own_words(message):
    """A message of the reference without those of its language's libraries."""
    words = re.split(r": json: |: [0-9a-f]+$", message)[0]
    return words.removesuffix(".").replace("%!q(<nil>)", '"/nowhere"')


@pytest.mark.parametrize("name", CASES)
def test_error_has_the_words_and_the_code_of_the_reference_plugin(host, reference, name):
    theirs, ours = reference_error(host, reference, CASES[name]), our_error(host, CASES[name])
    assert own_words(theirs["msg"]).replace(str(reference), str(host.programs)) in ours["msg"]
    assert theirs["code"] in (ours["code"], INTERNAL)
    assert ours["code"] != INTERNAL


@pytest.mark.parametrize("name", ON_PURPOSE)
def test_error_differs_from_the_reference_plugin_on_purpose(host, reference, name):
    case, expected = ON_PURPOSE[name]
    theirs, ours = reference_error(host, reference, case), our_error(host, case)
    assert theirs.get("msg") != ours.get("msg")
    assert ours.get("code") == expected.get("code")
    assert expected.get("msg", "") in ours.get("msg", "")


@pytest.mark.parametrize(
    ("verb", "config", "env", "code", "words"),
    [
        ("STATUS", {"cniVersion": "1.0.0"}, {}, 1, "config version does not allow STATUS"),
        ("GC", {"cniVersion": "1.0.0"}, {}, 1, "config version does not allow GC"),
        ("GC", {}, {"CNI_PATH": ""}, 4, "required env variables [CNI_PATH] missing"),
        ("GC", {"name": ""}, {}, 7, "missing network name"),
        ("STATUS", {"cniVersion": "9.9.9"}, {}, 1, "incompatible CNI versions"),
        ("STATUS", {"ipam": {"type": "host-local"}}, {}, 7, "no IP ranges specified"),
    ],
)
def test_words_of_verbs_that_an_old_reference_lacks(host, verb, config, env, code, words):
    host.pod("a")
    with pytest.raises(Refused, match=re.escape(words)) as raised:
        host.call(verb, "a", host.bridge() | config, **env)
    assert raised.value.code == code
