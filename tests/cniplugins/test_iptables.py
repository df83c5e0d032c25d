"""iptables where the configuration asks for it: our plugins make the rules that the reference plugins make."""

import re
import subprocess
from pathlib import Path

import pytest

from podwire.cniplugins import iptables_backend

DUAL = ("10.88.0.0/24", "fd88::/64")
PLACES = (Path("/usr/lib/cni"), Path(__file__).parents[2] / ".venv/debian/usr/lib/cni")
PORT = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}


@pytest.fixture(scope="session")
def reference():
    found = next((place for place in PLACES if (place / "bridge").exists()), None)
    assert found is not None, "scripts/setup unpacks the reference plugins"
    return found


def saved(table: str, family: str = "iptables") -> list[str]:
    """Rules of our host, without counters."""
    done = subprocess.run([f"{family}-save", "-t", table], capture_output=True, check=True, text=True)
    return [line for line in done.stdout.splitlines() if line.startswith("-A ")]


def hashless(lines: list[str]) -> list[str]:
    """Chains are named by a hash of network and container."""
    return sorted(re.sub(r"CNI-(DN-)?[0-9a-f]{20,}", r"CNI-\1HASH", line) for line in lines)


def masqueraded(host, **keys):
    return host.bridge(*DUAL, ipMasq=True, ipMasqBackend="iptables", **keys)


@pytest.mark.parametrize("plugin", ["bridge", "ptp"])
def test_masquerading_is_added_checked_and_removed(host, refused, plugin):
    host.pod("a")
    config = masqueraded(host) | {"type": plugin}
    result = host.add("a", config)
    assert any("-s 10.88.0.2/32" in line and "-j CNI-" in line for line in saved("nat"))
    assert any("-s fd88::2/128" in line for line in saved("nat", "ip6tables"))
    host.check("a", config, result)
    assert host.add("a", config) == result
    assert sum("-s 10.88.0.2/32" in line for line in saved("nat")) == 1
    subprocess.run(["iptables", "-t", "nat", "-F", "POSTROUTING"], check=True)
    with refused(101, "10.88.0.2 is not masqueraded"):
        host.check("a", config, result)
    host.delete("a", config)
    assert saved("nat") == saved("nat", "ip6tables") == []
    assert host.left() == {}


def test_pod_is_masqueraded_outside_and_not_inside(host, serving, seen):
    a, b = host.pod("a"), host.pod("b")
    for name in "ab":
        host.add(name, masqueraded(host))
    with host.outside() as outside, serving(outside, 80) as server, serving(b, 80) as inside:
        assert seen(server, a, "192.0.2.2", 80) == "192.0.2.1"
        assert seen(inside, a, "10.88.0.3", 80) == "10.88.0.2"


def test_other_interface_of_a_container_stays_masqueraded(host):
    host.pod("a")
    for ifname in ("eth0", "eth1"):
        host.add("a", masqueraded(host), CNI_IFNAME=ifname)
    host.delete("a", masqueraded(host), CNI_IFNAME="eth0")
    assert [line for line in saved("nat") if "-s 10.88.0.2/32" in line] == []
    assert sum("-s 10.88.0.3/32" in line for line in saved("nat")) == 1
    host.delete("a", masqueraded(host), CNI_IFNAME="eth1")
    assert saved("nat") == []


def ported(host, previous, *mappings, **keys):
    return host.portmap(previous, *(mappings or (PORT,)), backend="iptables", **keys)


@pytest.mark.parametrize("address", ["192.0.2.1", "127.0.0.1"])
def test_host_port_leads_to_the_pod(host, serving, seen, address):
    pod = host.pod("a")
    previous = host.add("a", host.bridge(*DUAL, hairpinMode=True))
    config = ported(host, previous)
    assert host.add("a", config) == previous
    host.check("a", config, previous)
    with host.outside() as outside, serving(pod, 80) as server:
        source = None if address == "127.0.0.1" else outside
        assert seen(server, source, address, 8080) == ("10.88.0.1" if source is None else "192.0.2.2")
    host.delete("a", config)
    assert saved("nat") == saved("nat", "ip6tables") == []


def test_port_of_another_pod_is_refused(host, refused):
    for name in "ab":
        host.pod(name)
    first, second = (host.add(name, host.bridge()) for name in "ab")
    host.add("a", ported(host, first))
    with refused(100, "host port tcp 8080 belongs to a"):
        host.add("b", ported(host, second))
    host.delete("a", ported(host, first))
    host.add("b", ported(host, second))


@pytest.mark.parametrize("change", ["entry", "port"])
def test_check_of_host_ports_fails_for_each_change(host, refused, change):
    host.pod("a")
    previous = host.add("a", host.bridge())
    config = ported(host, previous)
    host.add("a", config)
    (chain,) = {line.split()[1] for line in saved("nat") if line.startswith("-A CNI-DN-")}
    subprocess.run(["iptables", "-t", "nat", "-F", "CNI-HOSTPORT-DNAT" if change == "entry" else chain], check=True)
    with refused(101, "host port tcp 8080 is no longer mapped"):
        host.check("a", config, previous)


def test_many_ports_marks_and_conditions_are_those_of_the_configuration(host):
    host.pod("a")
    previous = host.add("a", host.bridge())
    ports = [{"hostPort": 9000 + number, "containerPort": 80, "protocol": "tcp"} for number in range(20)]
    config = ported(host, previous, *ports, markMasqBit=5, conditionsV4=["-s", "192.0.2.0/24"])
    host.add("a", config)
    rules = saved("nat")
    assert sum("-A CNI-HOSTPORT-DNAT" in line and "-s 192.0.2.0/24" in line for line in rules) == 2
    assert any("--set-xmark 0x20/0x20" in line for line in rules)
    host.check("a", config, previous)
    host.delete("a", config)
    assert saved("nat") == []


@pytest.mark.parametrize(
    ("keys", "code", "reported"),
    [
        pytest.param({"backend": "ebpf"}, 2, "backend: 'ebpf'", id="backend"),
        pytest.param({"markMasqBit": 32}, 7, "markMasqBit: 32", id="bit"),
        pytest.param({"markMasqBit": 3, "externalSetMarkChain": "X"}, 7, "externalSetMarkChain", id="both"),
        pytest.param({"externalSetMarkChain": "a b"}, 7, "externalSetMarkChain: 'a b'", id="chain"),
        pytest.param({"conditionsV4": "x"}, 6, "conditionsV4", id="no list"),
        pytest.param({"conditionsV4": ["-s", "nonsense words"]}, 102, "iptables", id="what iptables refuses"),
    ],
)
def test_invalid_keys_of_portmap_are_errors_and_change_nothing(host, refused, keys, code, reported):
    host.pod("a")
    previous = host.add("a", host.bridge("10.88.0.0/24"))
    with refused(code, reported):
        host.add("a", ported(host, previous) | keys)
    assert saved("nat") == []


@pytest.mark.parametrize("policy", ["open", "isolated"])
def test_forwarding_is_accepted_checked_and_removed(host, refused, policy):
    host.pod("a")
    previous = host.add("a", host.bridge(*DUAL))
    config = {"cniVersion": "1.1.0", "name": "net", "type": "firewall", "dataDir": str(host.records)}
    config |= {"backend": "iptables", "prevResult": previous, "ingressPolicy": policy, "iptablesAdminChainName": "MINE"}
    host.add("a", config)
    rules = saved("filter")
    assert rules[0].endswith("-j CNI-FORWARD")
    assert any(line.endswith("-j MINE") for line in rules)
    assert any("-s 10.88.0.2/32 -j ACCEPT" in line for line in rules)
    host.check("a", config, previous)
    host.add("a", config)
    assert saved("filter") == rules
    subprocess.run(["iptables", "-F", "CNI-FORWARD"], check=True)
    with refused(101, "10.88.0.2"):
        host.check("a", config, previous)
    host.delete("a", config)
    assert saved("filter", "ip6tables") == []
    assert not any("10.88.0.2" in line for line in saved("filter"))


def test_rules_are_those_of_the_reference_plugins(host, programs, reference):
    host.way, outcomes = "program", []
    for place in (programs, reference):
        host.programs = place
        host.pod("a")
        own = {"cniVersion": "1.0.0"} | ({} if place == reference else {"ipMasqBackend": "iptables"})
        bridge = host.bridge("10.88.0.0/24", ipMasq=True, name="net", **own)
        bridge["ipam"]["dataDir"] = str(host.root / place.name)
        previous = host.add("a", bridge)
        portmap = host.portmap(previous, PORT, cniVersion="1.0.0", backend="iptables")
        host.add("a", portmap)
        outcomes.append(hashless(saved("nat")))
        host.delete("a", portmap)
        host.delete("a", bridge)
        host.namespaces.remove("a")
        subprocess.run(["iptables", "-t", "nat", "-F"], check=True)
        subprocess.run(["iptables", "-t", "nat", "-X"], check=True)
    assert outcomes[0] == outcomes[1]


def test_missing_iptables_is_named_with_the_fix(host, refused, monkeypatch):
    monkeypatch.setattr(iptables_backend, "_DIRECTORIES", ("/nowhere",))
    host.pod("a")
    with refused(102, "ipMasqBackend: iptables is not installed; install it"):
        host.add("a", masqueraded(host))
    assert host.left() == {}
    with refused(50, "iptables is not installed"):
        host.call("STATUS", "", masqueraded(host), "")
