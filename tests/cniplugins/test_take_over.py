"""A node that ran the reference plugins runs ours, and the other way round, while pods run."""

import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from hashlib import sha512
from pathlib import Path

import pytest

from podwire.cniplugins.dead_attachments import release_dead
from podwire.cniplugins.handover import hand_over
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.iptables import NOT_INSTALLED
from podwire.linux.values import Veth
from tests.cniplugins.support import Refused, elements

PLACES = (Path("/usr/lib/cni"), Path(__file__).parents[2] / ".venv/debian/usr/lib/cni")
DUAL = ("10.88.0.0/24", "fd88::/64")
LIMITS = {"ingressRate": 8_000_000, "ingressBurst": 8_000_000, "egressRate": 8_000_000, "egressBurst": 8_000_000}


@pytest.fixture(scope="session")
def reference():
    plugins = ("bridge", "ptp", "macvlan", "host-device", "host-local", "portmap", "firewall", "bandwidth", "tuning")
    found = next((place for place in PLACES if all((place / name).exists() for name in plugins)), None)
    assert found is not None, "scripts/setup unpacks the reference plugins"
    return found


@pytest.fixture(params=["nft", "legacy"])
def iptables(request, tmp_path, monkeypatch):
    """The variant of iptables that the reference plugins use."""
    for name in ("iptables", "ip6tables"):
        program = shutil.which(f"{name}-{request.param}")
        assert program is not None, "scripts/setup installs iptables"
        (tmp_path / "path").mkdir(exist_ok=True)
        (tmp_path / "path" / name).symlink_to(os.path.realpath(program))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:{os.environ['PATH']}")
    return request.param


class Node:
    """A chain of plugins on a host, called as a runtime calls them."""

    def __init__(self, host, reference, programs, *chain):
        host.way = "program"
        self.host, self.places, self.chain = host, {"reference": reference, "ours": programs}, chain

    def add(self, whose, id_, **capabilities):
        self.host.programs = self.places[whose]
        result = None
        for config in self.configs(result, capabilities):
            result = self.host.add(id_, config if result is None else config | {"prevResult": result})
        return result

    def configs(self, result, capabilities):
        values = {"runtimeConfig": capabilities} if capabilities else {}
        previous = {} if result is None else {"prevResult": result}
        return [config | values | previous for config in self.chain]

    def delete(self, whose, id_, result=None, netns=None, **capabilities):
        self.host.programs = self.places[whose]
        for config in reversed(self.configs(result, capabilities)):
            self.host.delete(id_, config, netns)

    def check(self, whose, id_, result, **capabilities):
        self.host.programs = self.places[whose]
        for config in self.configs(result, capabilities):
            self.host.check(id_, config, result)

    def collect(self, *valid):
        self.host.programs = self.places["ours"]
        listed = [{"containerID": id_, "ifname": "eth0"} for id_ in valid]
        for config in self.chain:
            self.host.call("GC", "", config | {"cniVersion": "1.1.0", "cni.dev/valid-attachments": listed}, "")


@pytest.fixture
def node(host, reference, programs):
    def make(*chain):
        return Node(host, reference, programs, *chain)

    return make


@pytest.fixture
def chain(host):
    """All plugins of a usual network; of a version that the reference plugins of Debian 12 know."""
    common = {"cniVersion": "1.0.0", "name": "net", "dataDir": str(host.records)}
    return (
        host.bridge(*DUAL, cniVersion="1.0.0", ipMasq=True),
        common | {"type": "portmap"},
        common | {"type": "firewall", "ingressPolicy": "same-bridge"},
        common | {"type": "bandwidth"} | LIMITS,
        common | {"type": "tuning", "mtu": 1400, "promisc": True},
    )


def mapped(port):
    return {"portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]}


def rules():
    """All that a chain or a rule of the reference plugins is, in both variants and families of iptables, and in nft."""
    lines = []
    for program in ("iptables", "ip6tables"):
        for variant in ("nft", "legacy"):
            text = subprocess.run([f"{program}-{variant}-save"], capture_output=True, text=True, check=True).stdout
            lines += [line for line in text.splitlines() if "CNI" in line and not line.startswith("#")]
    nft = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    return lines + [line for line in nft.splitlines() if "cni_" in line or "cni-br" in line]


def links():
    with KernelNetwork() as here:
        return sorted(link.name for link in here.links.list() if link.name not in ("lo", "cni0", "wan"))


def reaches(seen, serving, pod, port=8080):
    """Whether the host's port leads to this pod."""
    with serving(pod, 80) as server:
        server.settimeout(1)
        return seen(server, None, "127.0.0.1", port) is not None


def test_our_delete_removes_all_that_the_reference_plugins_added(node, chain, host, iptables, seen, serving):
    cluster, path = node(*chain), host.pod("old")
    result = cluster.add("reference", "old", **mapped(8080))
    assert reaches(seen, serving, path)
    assert rules()
    assert len(links()) == 2, "a veth and an ifb"
    assert (host.records / "old_eth0.json").exists()
    cluster.delete("ours", "old", result, **mapped(8080))
    assert rules() == []
    assert links() == []
    assert host.left() == {}
    assert not (host.records / "old_eth0.json").exists()
    with KernelNetwork(path) as pod:
        assert [link.name for link in pod.links.list()] == ["lo"]


def test_another_pod_of_the_reference_plugins_keeps_working(node, chain, host, iptables, seen, serving):
    cluster, first, second = node(*chain), host.pod("a"), host.pod("b")
    results = {"a": cluster.add("reference", "a", **mapped(8080)), "b": cluster.add("reference", "b", **mapped(8081))}
    before = [line for line in rules() if "-A" in line]
    cluster.delete("ours", "a", results["a"], **mapped(8080))
    after = [line for line in rules() if "-A" in line]
    assert 0 < len(after) < len(before)
    assert set(after) <= set(before)
    assert reaches(seen, serving, second, 8081)
    third = host.pod("c")
    results["c"] = cluster.add("ours", "c", **mapped(8080))
    assert reaches(seen, serving, third, 8080), "the new pod has the port of the deleted one"
    assert reaches(seen, serving, second, 8081)
    cluster.check("ours", "b", results["b"], **mapped(8081))
    assert first
    for id_, port in (("b", 8081), ("c", 8080)):
        cluster.delete("ours", id_, results[id_], **mapped(port))
    assert rules() == links() == []
    assert host.left() == {}


def test_delete_needs_neither_the_namespace_nor_the_result(node, chain, host):
    cluster = node(*chain[:2])
    host.pod("old")
    cluster.add("reference", "old", **mapped(8080))
    host.namespaces.remove("old")
    cluster.delete("ours", "old", netns="")
    assert rules() == links() == []
    assert host.left() == {}


def test_delete_finds_the_link_without_a_result_by_its_leased_address(node, chain, host):
    cluster, path = node(chain[0]), host.pod("old")
    cluster.add("reference", "old")
    cluster.delete("ours", "old")
    assert rules() == links() == []
    assert host.left() == {}
    with KernelNetwork(path) as pod:
        assert [link.name for link in pod.links.list()] == ["lo"]


def test_the_link_of_another_pod_in_the_same_namespace_is_kept(node, chain, host):
    """A path that is used again: the DEL of the pod that had it before must not touch the present one."""
    cluster, path = node(chain[0]), host.pod("new")
    result = cluster.add("reference", "new")
    stale = json.loads(json.dumps(result).replace(result["interfaces"][2]["mac"], "02:00:00:00:00:07"))
    cluster.delete("ours", "old", stale, netns=path)
    with KernelNetwork(path) as pod:
        assert pod.links.get("eth0").up
    ours = cluster.add("ours", "third") if host.pod("third") else None
    cluster.delete("ours", "old", ours, netns=host.namespaces.path("third"))
    with KernelNetwork(host.namespaces.path("third")) as pod:
        assert pod.links.get("eth0").up


def test_check_accepts_and_compares_what_the_reference_plugins_made(node, chain, host, refused):
    cluster, path = node(*chain), host.pod("old")
    result = cluster.add("reference", "old", **mapped(8080))
    cluster.check("ours", "old", result, **mapped(8080))
    before = rules()
    assert rules() == before, "CHECK changes nothing"
    with KernelNetwork(path) as pod:
        index = pod.links.get("eth0").ifindex
        address = next(own.interface for own in pod.addresses.list(index) if str(own.interface).startswith("10."))
        pod.addresses.delete(index, address)
    with refused(101, "does not have the address"):
        cluster.check("ours", "old", result, **mapped(8080))
    subprocess.run(["iptables", "-t", "nat", "-F", "POSTROUTING"], check=True)
    cluster.delete("ours", "old", result, **mapped(8080))


def test_check_says_so_if_nobody_attached_the_pod(node, chain, host, refused):
    cluster = node(chain[0])
    host.pod("old")
    result = cluster.add("reference", "old")
    cluster.delete("reference", "old", result)
    with refused(3, "old eth0 is not attached"):
        cluster.check("ours", "old", result)


def test_garbage_collection_removes_rules_of_pods_that_ended_without_delete(node, chain, host, iptables, seen, serving):
    cluster = node(*chain[:2])
    for id_, port in (("dead", 8080), ("alive", 8081)):
        host.pod(id_)
        cluster.add("reference", id_, **mapped(port))
    host.namespaces.remove("dead")
    cluster.collect("alive")
    assert not any("dead" in line or "10.88.0.2" in line for line in rules())
    assert reaches(seen, serving, host.namespaces.path("alive"), 8081)
    cluster.collect()
    assert rules() == []


def test_a_host_port_of_a_pod_that_the_reference_plugin_added_is_refused(node, chain, host, refused):
    cluster = node(*chain[:2])
    host.pod("old")
    result = cluster.add("reference", "old", **mapped(8080))
    host.pod("new")
    with refused(100, "host port tcp 8080 belongs to old"):
        cluster.add("ours", "new", **mapped(8080))
    cluster.delete("ours", "new", **mapped(8080))
    cluster.delete("ours", "old", result, **mapped(8080))
    cluster.add("ours", "new", **mapped(8080))


NEWER = """
table inet cni_plugins_masquerade {
    chain masq_checks {
        ip saddr 10.88.0.12 ip daddr != 10.88.0.0/24 masquerade comment "%(a)s, net: net, if: eth0, id: a"
        ip saddr 10.88.0.13 ip daddr != 10.88.0.0/24 masquerade comment "%(b)s, net: net, if: eth0, id: b"
        ip saddr 10.99.0.3 ip daddr != 10.99.0.0/24 masquerade comment "%(other)s, net: other, if: eth0, id: a"
    }
    chain postrouting { type nat hook postrouting priority srcnat; goto masq_checks; }
}
table ip cni_hostport {
    chain hostports {
        tcp dport 8080 dnat to 10.88.0.12:80 comment "a"
        tcp dport 8081 dnat to 10.88.0.13:80 comment "b"
    }
    chain hostip_hostports { }
    chain hostports_all { jump hostip_hostports; jump hostports; }
    chain prerouting { type nat hook prerouting priority dstnat; fib daddr type local jump hostports_all; }
    chain masquerading {
        type nat hook postrouting priority srcnat;
        ip saddr 10.88.0.2 ip daddr 10.88.0.2 masquerade comment "a"
        ip saddr 10.88.0.3 ip daddr 10.88.0.3 masquerade comment "b"
    }
}
table bridge nat {
    chain cni-br-iface-a-eth0-mac { ether saddr 02:00:00:00:00:01 return comment "macspoofchk-a-eth0"; drop; }
    chain cni-br-iface-a-eth0 { jump cni-br-iface-a-eth0-mac comment "macspoofchk-a-eth0"; }
    chain PREROUTING {
        type filter hook prerouting priority -300;
        iifname "veth1" jump cni-br-iface-a-eth0 comment "macspoofchk-a-eth0"
    }
}
"""


def test_nft_rules_of_newer_reference_plugins_are_respected_and_removed(node, chain, host, refused):
    """In the form of version 1.9; the comments' digits are of sha512, as `names.py` says."""

    def digits(text):
        return sha512(text.encode()).hexdigest()[:16]

    comments = {id_: f"{digits('net')}-{digits(f'eth0:{id_}')}" for id_ in "ab"}
    comments["other"] = f"{digits('other')}-{digits('eth0:a')}"
    subprocess.run(["nft", "-f", "-"], input=NEWER % comments, text=True, check=True)
    cluster = node(*chain[:2])
    for port, id_ in ((8080, "a"), (8081, "b")):
        host.pod("new")
        with refused(100, f"host port tcp {port} belongs to {id_}"):
            cluster.add("ours", "new", **mapped(port))
        cluster.delete("ours", "new")
        host.namespaces.remove("new")
    cluster.delete("ours", "a", netns="", **mapped(8080))
    text = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    assert '"a"' not in text
    assert comments["a"] not in text
    assert "cni-br-iface" not in text
    assert text.count('comment "b"') == 2
    assert comments["b"] in text
    assert comments["other"] in text
    cluster.collect()
    text = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    assert comments["b"] not in text
    assert comments["other"] in text
    assert "dport 8081" in text, "a rule without a network may be of another one"
    cluster.delete("ours", "b", netns="", **mapped(8081))
    text = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    assert "cni_hostport" not in text


def test_the_reference_plugins_delete_a_pod_of_ours_and_our_gc_the_rest(node, chain, host, seen, serving):
    cluster, path = node(*chain), host.pod("ours")
    result = cluster.add("ours", "ours", **mapped(8080))
    assert reaches(seen, serving, path)
    with suppress(Refused):  # version 1.1 fails once for a chain of masquerading that it does not find
        cluster.delete("reference", "ours", result, **mapped(8080))
    cluster.delete("reference", "ours", result, **mapped(8080))
    assert links() == [], "neither a veth nor an ifb"
    assert not any(name.startswith("10.88") for name in (path.name for path in host.leases.iterdir()))
    cluster.collect()
    assert host.left() == {}
    assert elements() == []
    theirs = host.pod("theirs")
    cluster.add("reference", "theirs", **mapped(8080))
    assert reaches(seen, serving, theirs), "the host port leads to the new pod"


def test_dead_attachments_are_released_by_their_records(node, chain, host):
    """For networks before version 1.1.0, which have no GC."""
    cluster = node(*chain)
    for id_, port in (("dead", 8080), ("alive", 8081)):
        host.pod(id_)
        result = cluster.add("ours", id_, **mapped(port))
    with suppress(Refused):
        cluster.delete("reference", "dead", cluster.add("ours", "dead", **mapped(8080)), **mapped(8080))
    host.namespaces.remove("dead")
    released = list(release_dead(str(host.records), "", print))
    assert [(item.network, item.container_id, item.ifname) for item in released] == [("net", "dead", "eth0")]
    assert not any("dead" in comment for comment in elements())
    cluster.check("ours", "alive", result, **mapped(8081))
    assert list(release_dead(str(host.records), "", print)) == []


def handed_over(host, variant="nft"):
    """Container ids, and whether each attachment was handed over."""
    done = hand_over(str(host.records), "", variant, print)
    return {item.attachment.container_id: item.is_handed_over for item in done}


def of_podwire():
    """Nft tables and links of ours."""
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    with KernelNetwork() as here:
        tagged = [link.name for link in here.links.list() if link.alias.startswith("podwire:") or link.group]
    return [line for line in tables.splitlines() if "podwire" in line], tagged


def test_running_pods_are_handed_over_to_the_reference_plugins(node, chain, host, iptables, seen, serving):
    cluster, first, second = node(*chain), host.pod("a"), host.pod("b")
    results = {"a": cluster.add("ours", "a", **mapped(8080)), "b": cluster.add("ours", "b", **mapped(8081))}
    assert rules() == []
    assert handed_over(host, iptables) == {"a": True, "b": True}
    assert of_podwire() == ([], [])
    assert list(host.records.glob("*/*")) == []
    assert reaches(seen, serving, first, 8080), "the host port works all the time"
    assert reaches(seen, serving, second, 8081)
    assert handed_over(host, iptables) == {}
    node(chain[0], chain[2]).check("reference", "a", results["a"])  # CHECK of its portmap fails for two families
    cluster.check("ours", "b", results["b"], **mapped(8081))
    cluster.delete("reference", "a", results["a"], **mapped(8080))
    assert not reaches(seen, serving, first, 8080)
    assert reaches(seen, serving, second, 8081)
    third = host.pod("c")
    results["c"] = cluster.add("reference", "c", **mapped(8080))
    assert reaches(seen, serving, third, 8080), "the new pod has the port of the deleted one"
    cluster.delete("reference", "c", results["c"], **mapped(8080))
    cluster.delete("reference", "b", results["b"], **mapped(8081))
    assert links() == []
    assert not any(" -s 10." in line or "-DN-" in line for line in rules()), "only chains that all pods share"
    assert [path.name for path in host.leases.iterdir() if path.name[0] in "1@~f"] == []


def test_pods_that_were_handed_over_are_taken_over_again(node, chain, host):
    cluster = node(*chain)
    host.pod("a")
    result = cluster.add("ours", "a", **mapped(8080))
    handed_over(host)
    cluster.delete("ours", "a", result, **mapped(8080))
    assert links() == rules() == []
    assert host.left() == {}


def test_a_hand_over_that_was_killed_is_completed_by_the_next(node, chain, host, seen, serving, monkeypatch):
    guarded = chain[0] | {"macspoofchk": True}
    cluster, path = node(guarded, *chain[1:]), host.pod("a")
    result = cluster.add("ours", "a", **mapped(8080))
    with monkeypatch.context() as killed:
        killed.setattr("podwire.cniplugins.handover.Attachments.remove", lambda *_: 1 / 0)
        for _ in chain:
            with pytest.raises(ZeroDivisionError):
                handed_over(host)
    assert reaches(seen, serving, path, 8080)
    assert handed_over(host) == {"a": True}
    assert of_podwire() == ([], [])
    assert reaches(seen, serving, path, 8080)
    own = [line for line in rules() if "10.88." in line or "iifname" in line]
    assert len(own) == len(set(own)), "no rule was made twice"
    cluster.delete("reference", "a", result, **mapped(8080))
    assert links() == []
    assert not any(" -s 10." in line or "-DN-" in line or "cni-br" in line for line in rules())


def test_hand_over_releases_what_the_reference_plugins_have_deleted(node, chain, host):
    """They were installed first: their DEL knows neither our rules nor our records."""
    cluster = node(*chain)
    host.pod("a"), host.pod("b")
    result = cluster.add("ours", "a", **mapped(8080))
    cluster.add("ours", "b", **mapped(8081))
    with suppress(Refused):
        cluster.delete("reference", "a", result, **mapped(8080))
    cluster.delete("reference", "a", result, **mapped(8080))
    host.namespaces.remove("b")
    assert handed_over(host) == {"a": False, "b": False}
    assert of_podwire() == ([], [])
    assert links() == rules() == []
    assert host.left() == {}


def test_rules_of_iptables_need_no_hand_over(node, chain, host, seen, serving):
    """A network that asks for them has rules that the reference plugins know."""
    backends = (
        {"ipMasqBackend": "iptables"},
        {"backend": "iptables"},
        {"backend": "iptables", "ingressPolicy": "open"},
    )
    cluster, path = node(*(config | keys for config, keys in zip(chain, backends, strict=False))), host.pod("a")
    result = cluster.add("ours", "a", **mapped(8080))
    assert reaches(seen, serving, path)
    cluster.delete("reference", "a", result, **mapped(8080))
    assert links() == elements() == []
    assert not any(" -s 10." in line or "-DN-" in line for line in rules())


def nft_rules(table):
    """Rules of a table with their comments, without handles."""
    listed = subprocess.run(["nft", "list", "table", *table.split()], capture_output=True, text=True, check=False)
    return [line.strip() for line in listed.stdout.splitlines() if " comment " in line]


@pytest.mark.parametrize("asks", [True, False], ids=["nftables", "without-iptables"])
def test_rules_of_nftables_are_handed_over_in_the_form_of_newer_reference_plugins(
    node, chain, host, seen, serving, asks, monkeypatch
):
    """Of version 1.6 and later, if the configuration names nftables, or iptables is not installed."""
    keys = ({"ipMasqBackend": "nftables"}, {"backend": "nftables"}) if asks else ({}, {})
    cluster = node(*(config | key for config, key in zip(chain[:2], keys, strict=True)))
    paths = {id_: host.pod(id_) for id_ in "ab"}
    for id_, port in (("a", 8080), ("b", 8081)):
        cluster.add("ours", id_, **mapped(port))
    variant = "nft" if asks else NOT_INSTALLED
    with monkeypatch.context() as killed:
        killed.setattr("podwire.cniplugins.handover.Attachments.remove", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            handed_over(host, variant)
    assert handed_over(host, variant) == {"a": True, "b": True}
    assert of_podwire() == ([], [])
    assert not any("CNI" in line for line in rules()), "none of iptables"
    assert reaches(seen, serving, paths["a"], 8080)
    assert reaches(seen, serving, paths["b"], 8081)
    assert nft_rules("ip cni_hostport") == [
        'tcp dport 8080 dnat to 10.88.0.2:80 comment "a"',
        'tcp dport 8081 dnat to 10.88.0.3:80 comment "b"',
        'ip saddr 10.88.0.2 ip daddr 10.88.0.2 masquerade comment "a"',
        'ip saddr 127.0.0.1 ip daddr 10.88.0.2 masquerade comment "a"',
        'ip saddr 10.88.0.3 ip daddr 10.88.0.3 masquerade comment "b"',
        'ip saddr 127.0.0.1 ip daddr 10.88.0.3 masquerade comment "b"',
    ]
    assert 'tcp dport 8080 dnat to [fd88::2]:80 comment "a"' in nft_rules("ip6 cni_hostport")
    digits = [sha512(text.encode()).hexdigest()[:16] for text in ("net", "eth0:a")]
    comment = f'comment "{"-".join(digits)}, net: net, if: eth0, id: a"'
    masqueraded = nft_rules("inet cni_plugins_masquerade")
    assert f"ip saddr 10.88.0.2 ip daddr != 10.88.0.0/24 masquerade {comment}" in masqueraded
    assert f"ip6 saddr fd88::2 ip6 daddr != fd88::/64 masquerade {comment}" in masqueraded
    assert len(masqueraded) == 4
    for id_, port in (("a", 8080), ("b", 8081)):
        cluster.delete("ours", id_, netns="", **mapped(port))
    assert rules() == []


def test_the_guard_against_spoofed_macs_is_handed_over(node, host):
    cluster, path = node(host.bridge(*DUAL, cniVersion="1.0.0", macspoofchk=True)), host.pod("a")
    result = cluster.add("ours", "a")
    handed_over(host)
    text = subprocess.run(["nft", "list", "table", "bridge", "nat"], capture_output=True, text=True, check=True).stdout
    with KernelNetwork(path) as pod:
        assert f"ether saddr {pod.links.get('eth0').mac} return" in text
    assert f'iifname "{result["interfaces"][1]["name"]}" jump cni-br-iface-a-eth0' in text
    cluster.delete("reference", "a", result)
    text = subprocess.run(["nft", "list", "table", "bridge", "nat"], capture_output=True, text=True, check=True).stdout
    assert "cni-br-iface" not in text
    assert links() == []


def test_the_reference_plugin_removes_its_guard_beside_our_rules(node, host):
    """It reads the whole ruleset of the host as JSON."""
    cluster = node(host.bridge(*DUAL, cniVersion="1.0.0", macspoofchk=True))
    for id_, whose in (("a", "ours"), ("b", "reference")):
        host.pod(id_)
        result = cluster.add(whose, id_)
    cluster.delete("reference", "b", result)
    text = subprocess.run(["nft", "list", "table", "bridge", "nat"], capture_output=True, text=True, check=True).stdout
    assert "cni-br-iface" not in text


@pytest.mark.parametrize("policy", ["same-bridge", "isolated"])
def test_ingress_policies_are_handed_over(node, chain, host, policy):
    host.pod("a")
    cluster = node(chain[0], chain[2] | {"ingressPolicy": policy})
    cluster.add("ours", "a")
    handed_over(host)
    assert handed_over(host) == {}
    text = subprocess.run(["iptables-save", "-t", "filter"], capture_output=True, text=True, check=True).stdout
    assert len(re.findall(r"-A CNI-ISOLATION-STAGE-1 -i cni0 ! -o cni0 .* -j CNI-ISOLATION-STAGE-2", text)) == 1
    assert len(re.findall(r"-A CNI-ISOLATION-STAGE-1 -i cni0 -o cni0 .* -j DROP", text)) == (policy == "isolated")
    assert len(re.findall(r"-A CNI-ISOLATION-STAGE-2 -o cni0 .* -j DROP", text)) == 1
    assert text.index("CNI-ISOLATION-STAGE-2 -o cni0") < text.index("CNI-ISOLATION-STAGE-2 -m comment")


@pytest.mark.parametrize("kind", ["ptp", "macvlan", "host-device"])
def test_links_of_other_plugins_are_handed_over(node, host, kind):
    with KernelNetwork() as here:
        here.links.add(Veth("dev0", "dev1", up=True))
        here.links.change("dev1", up=True)
    keys = {"ptp": {"ipMasq": True}, "macvlan": {"master": "dev0"}, "host-device": {"device": "dev0"}}[kind]
    cluster, path = node(host.config(kind, *DUAL, cniVersion="1.0.0", **keys)), host.pod("a")
    result = cluster.add("ours", "a")
    assert handed_over(host) == {"a": True}
    assert of_podwire() == ([], [])
    cluster.check("reference", "a", result)
    cluster.delete("reference", "a", result)
    assert rules() == []
    assert links() == ["dev0", "dev1"]
    with KernelNetwork(path) as pod:
        assert [link.name for link in pod.links.list()] == ["lo"]


@pytest.mark.parametrize("kind", ["ptp", "macvlan", "host-device"])
def test_other_plugins_take_over_as_well(node, host, kind):
    with KernelNetwork() as here:
        here.links.add(Veth("dev0", "dev1", up=True))
        here.links.change("dev1", up=True)
    keys = {"ptp": {"ipMasq": True}, "macvlan": {"master": "dev0"}, "host-device": {"device": "dev0"}}[kind]
    cluster, path = node(host.config(kind, *DUAL, cniVersion="1.0.0", **keys)), host.pod("old")
    result = cluster.add("reference", "old")
    cluster.check("ours", "old", result)
    cluster.delete("ours", "old", result)
    assert rules() == []
    assert links() == ["dev0", "dev1"]
    assert host.left() == {}
    with KernelNetwork(path) as pod, KernelNetwork() as here:
        assert [link.name for link in pod.links.list()] == ["lo"]
        assert here.links.get("dev0").alias == ""
