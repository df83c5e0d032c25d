"""firewall beside the firewalls of others, with real connections."""

import shutil
import subprocess

import pytest

from podwire.linux.nft.table import KernelRuleset
from tests.eventually import eventually

IPTABLES = """
add table {family} filter
add chain {family} filter FORWARD {{ type filter hook forward priority filter; policy drop; }}
add chain {family} filter DOCKER-USER
add rule {family} filter FORWARD jump DOCKER-USER
"""
FAMILIES = {4: "ip", 6: "ip6"}
OUTSIDE = {4: "192.0.2.2", 6: "2001:db8::2"}


def drop(*families):
    for family in families:
        KernelRuleset().apply(IPTABLES.format(family=FAMILIES[family]))


def forward(family=4):
    words = ["nft", "list", "chain", FAMILIES[family], "filter", "FORWARD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def attach(host):
    """A pod on a bridge, and the configuration that firewall got for it."""

    def add(pod="a", **keys):
        host.pod(pod)
        previous = host.add(pod, host.bridge("10.88.0.0/24", "fd88::/64", ipMasq=True))
        configuration = {"cniVersion": "1.1.0", "name": "net", "type": "firewall", "dataDir": str(host.records)}
        configuration |= {"prevResult": previous} | keys
        assert host.add(pod, configuration) == previous
        return configuration

    return add


@pytest.mark.parametrize("family", [4, 6])
def test_pod_passes_an_iptables_forward_policy_of_drop(host, attach, serving, seen, family):
    drop(4, 6)
    attachment = attach()
    with host.outside() as outside, serving(outside, 80, family) as server:
        eventually(lambda: seen(server, host.namespaces.path("a"), OUTSIDE[family], 80) is not None)
        host.delete("a", attachment)
        assert seen(server, host.namespaces.path("a"), OUTSIDE[family], 80) is None, "the policy is theirs"


def test_foreign_drop_rule_still_applies(host, attach, serving, seen):
    drop(4)
    KernelRuleset().apply("add rule ip filter DOCKER-USER ip saddr 10.88.0.0/24 drop\n")
    attach()
    with host.outside() as outside, serving(outside, 80) as server:
        assert seen(server, host.namespaces.path("a"), OUTSIDE[4], 80) is None


def test_rule_accepts_packets_of_pods_only(host, attach, serving, seen):
    drop(4)
    attach("a")
    host.pod("b")
    host.add("b", host.bridge("10.88.0.0/24", "fd88::/64", ipMasq=True))
    with host.outside() as outside, serving(outside, 80) as server:
        assert seen(server, host.namespaces.path("b"), OUTSIDE[4], 80) is None


def test_one_rule_serves_all_pods_and_is_removed_with_the_last(host, attach):
    drop(4)
    before = forward()
    attachment = {pod: attach(pod) for pod in ("a", "b")}
    host.add("a", attachment["a"])
    assert forward().count("podwire") == 1
    host.delete("a", attachment["a"])
    assert forward().count("podwire") == 1
    host.delete("b", attachment["b"])
    assert forward() == before


def test_last_pods_may_be_removed_concurrently(host, attach):
    drop(4, 6)
    before = forward()
    attachment = {f"p{number}": attach(f"p{number}") for number in range(6)}
    processes = [host.run("DEL", pod, each) for pod, each in attachment.items()]
    assert [process.communicate(timeout=60)[0] for process in processes] == [b""] * len(attachment)
    assert forward() == before


def test_no_rule_is_added_without_a_drop_policy(host, attach):
    drop(4)
    KernelRuleset().apply("add chain ip filter FORWARD { policy accept; }\n")
    attachment = attach()
    assert "podwire" not in forward()
    host.check("a", attachment, attachment["prevResult"])


def test_check_fails_without_the_rule_and_the_next_add_restores_it(host, attach, refused):
    attachment = attach()
    host.check("a", attachment, attachment["prevResult"])
    drop(6)
    with refused(101, "the nft chain ip6 filter FORWARD drops packets of pods"):
        host.check("a", attachment, attachment["prevResult"])
    attach("b")
    host.check("a", attachment, attachment["prevResult"])


def test_other_chain_with_policy_drop_is_a_warning(host, attach, capsys):
    KernelRuleset().apply(
        "add table inet mine\nadd chain inet mine fw { type filter hook forward priority 0; policy drop; }\n"
    )
    attach()
    assert "the nft chain inet mine fw has the policy drop" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("iptables-nft") is None, reason="Debian's iptables is not here")
def test_iptables_saves_and_restores_our_rule(host, attach, tmp_path):
    def iptables(*words, given=""):
        return subprocess.run(words, input=given, capture_output=True, text=True, check=True).stdout

    iptables("iptables-nft", "-P", "FORWARD", "DROP")
    attachment = attach()
    assert "-A FORWARD -m mark --mark 0x1000/0x1000 -m comment --comment podwire -j ACCEPT" in iptables(
        "iptables-nft", "-S"
    )
    iptables("iptables-nft-restore", given=iptables("iptables-nft-save"))
    host.check("a", attachment, attachment["prevResult"])
    attach("b")
    assert iptables("iptables-nft", "-S").count("0x1000/0x1000") == 1
    for pod in ("a", "b"):
        host.delete(pod, attachment)
    assert "0x1000" not in iptables("iptables-nft", "-S")
