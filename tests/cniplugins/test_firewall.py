"""firewall, with real connections."""

import json
import signal
from ipaddress import ip_interface

import pytest

from podwire.cniplugins.firewall.plugin import ISOLATED_SETS, SETS
from podwire.linux import errors as linux
from podwire.linux.nft.table import KernelElements, KernelRuleset
from tests.eventually import eventually

NETS = {"cni0": ("10.88.0.0/24", "fd88::/64"), "cni1": ("10.89.0.0/24", "fd89::/64")}


def bridge(host, name="cni0"):
    config = host.bridge(*NETS[name], bridge=name, ipMasq=True)
    config["ipam"]["dataDir"] = str(host.root / name)
    return config


@pytest.fixture
def config(host):
    """A pod with a link, and the configuration that firewall gets for it."""

    def make(pod="a", net="cni0", **keys):
        host.pod(pod)
        configuration = {"cniVersion": "1.1.0", "name": "net", "type": "firewall", "dataDir": str(host.records)}
        return configuration | {"prevResult": host.add(pod, bridge(host, net))} | keys

    return make


@pytest.fixture
def attach(host, config):
    def add(pod, net="cni0", **keys):
        configuration = config(pod, net, **keys)
        assert host.add(pod, configuration) == configuration["prevResult"]
        return configuration

    return add


def elements():
    """Sets with their owners, in both tables."""
    table, found = KernelElements(), []
    for family, sets in (("inet", SETS), ("bridge", ISOLATED_SETS)):
        for name in sets:
            try:
                found += [(name, item.comment.split()[1]) for item in table.of(family).list(name)]
            except linux.Missing:
                continue
    table.close()
    return sorted(found)


def traces(host):
    return elements(), [path.name for path in host.records.glob("firewall/*")]


def address(config, family=4):
    return str(ip_interface(config["prevResult"]["ips"][0 if family == 4 else 1]["address"]).ip)


@pytest.fixture
def reached(seen):
    """Whether a server is reached as it should be: what takes its time on a busy machine is tried again."""

    def check(server, path, address, port, expected=True):
        if expected:
            eventually(lambda: seen(server, path, address, port) is not None)
        else:
            assert seen(server, path, address, port) is None

    return check


@pytest.mark.parametrize("way", ["in process", "program", "daemon"])
@pytest.mark.parametrize("policy", ["open", "same-bridge", "isolated"])
def test_pod_is_in_its_sets_from_add_to_del(host, attach, policy, way):
    attachment = attach("a", ingressPolicy=policy)
    sets = {"open": ["forward"], "same-bridge": ["forward", "inside", "policed"]}
    sets["isolated"] = [*sets["same-bridge"], "isolated"]
    assert elements() == sorted((f"{set_}{family}", "a") for set_ in sets[policy] for family in (4, 6))
    host.check("a", attachment, attachment["prevResult"])
    host.delete("a", attachment)
    assert traces(host) == ([], [])
    host.delete("a", attachment)


@pytest.mark.parametrize("family", [4, 6])
def test_packets_of_a_pod_and_replies_are_forwarded(host, attach, serving, reached, family):
    attach("a")
    with host.outside() as outside, serving(outside, 80, family) as server:
        there = "192.0.2.2" if family == 4 else "2001:db8::2"
        reached(server, host.namespaces.path("a"), there, 80)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize(
    ("policy", "reach"),
    [
        pytest.param("open", {"same": True, "other": True, "host": True}, id="open"),
        pytest.param("same-bridge", {"same": True, "other": False, "host": True}, id="same-bridge"),
        pytest.param("isolated", {"same": False, "other": False, "host": True}, id="isolated"),
    ],
)
def test_ingress_policy_limits_who_reaches_a_pod(host, attach, serving, reached, policy, reach, family):
    nets = {"a": "cni0", "same": "cni0", "other": "cni1"}
    attached = {pod: attach(pod, net, ingressPolicy=policy) for pod, net in nets.items()}
    result = attached["a"]
    paths = {"same": host.namespaces.path("same"), "other": host.namespaces.path("other"), "host": None}
    with serving(host.namespaces.path("a"), 80, family) as server:
        for who, path in paths.items():
            reached(server, path, address(result, family), 80, reach[who])
        for pod, each in attached.items():
            host.delete(pod, each)
        for path in paths.values():
            reached(server, path, address(result, family), 80)


def test_isolated_pod_is_reachable_by_its_host_port(host, attach, serving, reached):
    attachment = attach("a", ingressPolicy="isolated")
    a = host.namespaces.path("a")
    mapping = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
    host.add("a", host.portmap(attachment["prevResult"], mapping))
    with host.outside() as outside, serving(outside, 80) as theirs, serving(a, 80) as ours:
        reached(theirs, a, "192.0.2.2", 80)
        reached(ours, outside, "192.0.2.1", 8080)


def test_repeated_add_changes_only_the_policy(host, attach):
    attachment = attach("a", ingressPolicy="isolated")
    before = elements()
    host.add("a", attachment)
    assert elements() == before
    host.add("a", attachment | {"ingressPolicy": "open"})
    assert elements() == [("forward4", "a"), ("forward6", "a")]
    host.delete("a", attachment)
    assert traces(host) == ([], [])


@pytest.mark.parametrize("lost", ["prevResult", "the namespace", "ingressPolicy"])
def test_del_needs_only_the_ids(host, attach, lost):
    attachment = attach("a", ingressPolicy="isolated")
    if lost == "the namespace":
        host.namespaces.remove("a")
    attachment.pop(lost, None)
    host.delete("a", attachment, "")
    assert traces(host) == ([], [])


def test_address_of_another_pod_stays_in_its_sets(host, attach):
    first = attach("a", ingressPolicy="isolated")
    host.pod("b")
    second = first | {"ingressPolicy": "isolated"}
    host.add("b", second)
    host.delete("a", first)
    assert {who for _, who in elements()} == {"b"}
    host.check("b", second, second["prevResult"])


def test_gc_releases_invalid_attachments(host, attach):
    attachment = attach("a", ingressPolicy="isolated")
    attach("b")
    valid = {"cni.dev/valid-attachments": [{"containerID": "b", "ifname": "eth0"}]}
    assert host.call("GC", "", attachment | valid, "") is None
    assert traces(host) == ([("forward4", "b"), ("forward6", "b")], ["net@b@eth0"])
    assert host.call("STATUS", "", attachment, "") is None


def test_gc_removes_elements_without_a_record_by_their_tags(host, attach):
    attachment = attach("a", ingressPolicy="isolated")
    attach("b", ingressPolicy="isolated")
    for path in host.records.glob("firewall/*"):
        path.unlink()
    valid = {"cni.dev/valid-attachments": [{"containerID": "b", "ifname": "eth0"}]}
    assert host.call("GC", "", attachment | valid, "") is None
    assert {who for _, who in elements()} == {"b"}


def test_status_fails_without_nft(host, config, refused, monkeypatch):
    configuration = config()
    assert host.call("STATUS", "", configuration, "") is None
    monkeypatch.setattr("podwire.linux.nft.table._ENVIRONMENT", {"PATH": "/nowhere"})
    with refused(50, "nft"):
        host.call("STATUS", "", configuration, "")


@pytest.mark.parametrize("name", ["forward4", "policed6", "inside4", "isolated6"])
def test_check_fails_for_each_missing_part(host, attach, refused, name):
    attachment = attach("a", ingressPolicy="isolated")
    table = KernelElements()
    family = table.of("bridge" if name in ISOLATED_SETS else "inet")
    family.delete(name, *family.list(name))
    table.close()
    with refused(101, f"no longer in the set {name}"):
        host.check("a", attachment, attachment["prevResult"])
    host.add("a", attachment)
    host.check("a", attachment, attachment["prevResult"])


def test_add_restores_flushed_rules(host, attach):
    first = attach("a", ingressPolicy="isolated")
    KernelRuleset().apply("flush ruleset\n")
    second = attach("b", ingressPolicy="isolated")
    host.check("b", second, second["prevResult"])
    host.delete("a", first)
    host.delete("b", second)
    assert traces(host) == ([], [])


@pytest.mark.parametrize(
    ("keys", "code", "reported"),
    [
        pytest.param({"backend": "firewalld"}, 2, "backend", id="firewalld"),
        pytest.param({"iptablesAdminChainName": "MINE"}, 2, "iptablesAdminChainName", id="admin chain"),
        pytest.param({"firewalldZone": "public"}, 2, "firewalldZone", id="zone"),
        pytest.param(
            {"ingressPolicy": "closed"}, 7, "ingressPolicy: 'closed' must be one of open", id="unknown policy"
        ),
    ],
)
def test_unsupported_keys_are_errors_with_their_name(host, config, refused, keys, code, reported):
    wanted = config(**keys)
    with refused(code, reported):
        host.add("a", wanted)
    assert traces(host) == ([], [])


def test_policy_needs_a_bridge_and_a_link(host, config, refused):
    wanted = config(ingressPolicy="same-bridge")
    result = wanted["prevResult"]
    with refused(7, "needs a bridge"):
        host.add("a", wanted | {"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.88.0.2/24"}]}})
    with refused(7, "needs a bridge"):
        host.add("a", wanted | {"prevResult": result | {"interfaces": result["interfaces"][::-1], "ips": []}})
    del wanted["prevResult"]
    for verb in ("ADD", "CHECK"):
        with refused(7, "prevResult: missing"):
            host.call(verb, "a", wanted)
    assert traces(host) == ([], [])


POINTS = ["recorded", "isolated", "added", "detached"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("action", ["kill", "1*error(on fire)->off"])
def test_del_removes_what_a_failed_add_left(host, config, point, action):
    wanted = config(ingressPolicy="isolated")
    verb = "DEL" if point == "detached" else "ADD"
    if verb == "DEL":
        host.add("a", wanted)
    process = host.run(verb, "a", wanted, PODWIRE_FAILPOINTS=f"cni.firewall-{point}={action}")
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if action == "kill" else 1)
    if action != "kill":
        assert json.loads(stdout)["code"] == 999
        assert point in ("added", "detached") or traces(host) == ([], [])
    host.delete("a", wanted)
    assert traces(host) == ([], [])
