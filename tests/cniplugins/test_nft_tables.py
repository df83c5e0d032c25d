"""Tables that nobody uses any more."""

import subprocess
from ipaddress import ip_network

import pytest

from podwire.cniplugins import nat
from podwire.cniplugins.nft_tables import SETS, remove_unused
from podwire.linux.nft.table import KernelElements, KernelRuleset

MAPPING = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
GUARDED = {"ipspoofchk": True, "ipMasq": True}


def tables():
    output = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    return set(output.splitlines())


def test_table_is_removed_with_its_last_element(host):
    host.pod("a")
    host.add("a", host.bridge("10.88.0.0/24", **GUARDED))
    remove_unused()
    assert tables() == {"table inet podwire", "table bridge podwire"}
    host.delete("a", host.bridge("10.88.0.0/24", **GUARDED))
    remove_unused()
    assert tables() == set()
    remove_unused()
    assert tables() == set()


def test_table_with_firewall_elements_is_kept(host):
    """The sets that exist depend on the plugins that ran here."""
    host.pod("a")
    config = host.bridge("10.88.0.0/24")
    result = host.add("a", config)
    firewall = {"cniVersion": "1.0.0", "name": "net", "type": "firewall", "dataDir": str(host.records)}
    host.add("a", firewall | {"prevResult": result})
    remove_unused()
    assert tables() == {"table inet podwire", "table bridge podwire"}


def test_table_lists_all_sets_of_the_kernel(host):
    host.pod("a")
    result = host.add("a", host.bridge("10.88.0.0/24", **GUARDED))
    firewall = {"cniVersion": "1.0.0", "name": "net", "type": "firewall", "ingressPolicy": "isolated"}
    host.add("a", firewall | {"prevResult": result, "dataDir": str(host.records)})
    for family, named in SETS.items():
        words = ["nft", "list", "table", family, "podwire"]
        output = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")
        there = {item.split()[1] for item in output if item.strip().startswith(("set ", "map "))}
        assert there == set(named)


def chains():
    """The chains of subnets."""
    words = ["nft", "list", "chains", "inet"]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return {word for word in output if word.startswith(("masquerade-", "hairpin-"))} - {"hairpin-all"}


def unused():
    table = KernelElements()
    try:
        return nat.unused_chains(table)
    finally:
        table.close()


@pytest.mark.parametrize("way", ["in process", "daemon"])
@pytest.mark.parametrize("kind", ["bridge", "ptp"])
def test_chains_of_a_subnet_are_removed_with_its_last_pod(host, kind, way):
    host.way = way
    config = host.config(kind, "10.88.0.0/24", "fd88::/64", ipMasq=True)
    for id_ in "ab":
        host.pod(id_)
        host.add(id_, config)
        host.add(id_, host.portmap(host.add(id_, config), MAPPING | {"hostPort": 8080 + ord(id_)}))
    used = chains()
    assert len(used) == 4
    host.delete("a", host.portmap({"cniVersion": "1.1.0"}))
    host.delete("a", config)
    assert chains() == used
    host.delete("b", host.portmap({"cniVersion": "1.1.0"}))
    assert {name for name in chains() if name.startswith("masquerade-")}, "still used by b"
    host.delete("b", config)
    assert chains() == set()


def test_chains_of_a_subnet_are_removed_when_its_last_pods_end_at_the_same_time(host):
    """Both list the elements before the other has removed its own."""
    config = host.bridge("10.88.0.0/24", ipMasq=True)
    for id_ in "ab":
        host.pod(id_)
        host.add(id_, config)
    first, second = KernelElements(), KernelElements()
    ended = []

    def selects_a(comment):
        if not ended:
            ended.append(nat.remove(second, nat.MASQUERADE_SETS, lambda other: other.split()[1] == "b"))
        return comment.split()[1] == "a"

    assert chains()
    nat.remove(first, nat.MASQUERADE_SETS, selects_a)
    assert ended
    assert chains() == set()
    for table in (first, second):
        table.close()


def test_chains_that_are_made_again_masquerade(host, serving, seen):
    """By netlink, without the program nft, whose rules are of the first time."""
    config = host.bridge("10.88.0.0/24", "fd88::/64", ipMasq=True)
    pod = host.pod("a")
    with host.outside() as outside:
        for port in (80, 81):
            host.add("a", config)
            for family, (far, expected) in enumerate((("192.0.2.2", "192.0.2.1"), ("2001:db8::2", "2001:db8::1"))):
                with serving(outside, port, (4, 6)[family]) as server:
                    assert seen(server, pod, far, port) == expected
            host.delete("a", config)
            assert chains() == set()


def test_chains_are_made_only_for_what_a_pod_uses(host):
    """Others would be leftovers while the pod lives."""
    host.pod("a")
    result = host.add("a", host.bridge("10.88.0.0/24", ipMasq=True))
    assert (chains(), unused()) == ({"masquerade-10.88.0.0-24"}, [])
    host.add("a", host.portmap(result, MAPPING))
    assert (chains(), unused()) == ({"masquerade-10.88.0.0-24", "hairpin-10.88.0.0-24"}, [])


def test_gc_removes_chains_that_nobody_uses(host):
    config = host.bridge("10.88.0.0/24", ipMasq=True)
    for id_ in "ab":
        host.pod(id_)
        host.add(id_, config)
    KernelRuleset().apply(nat.ruleset([ip_network("10.99.0.0/24")]))
    assert "masquerade-10.99.0.0-24" in unused()
    valid = [{"containerID": "a", "ifname": "eth0"}]
    host.call("GC", "", config | {"cni.dev/valid-attachments": valid}, "")
    assert chains() == {"masquerade-10.88.0.0-24"}
    assert unused() == []
