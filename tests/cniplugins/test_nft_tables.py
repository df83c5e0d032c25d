"""Tables that nobody uses any more."""

import subprocess

from podwire.cniplugins.nft_tables import SETS, remove_unused

GUARDED = {"ipspoofchk": True, "ipMasq": True}


def tables():
    told = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    return set(told.splitlines())


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
    """Which sets there are depends on which plugins were here."""
    host.pod("a")
    config = host.bridge("10.88.0.0/24")
    result = host.add("a", config)
    firewall = {"cniVersion": "1.0.0", "name": "net", "type": "firewall", "dataDir": str(host.records)}
    host.add("a", firewall | {"prevResult": result})
    remove_unused()
    assert tables() == {"table inet podwire"}


def test_table_lists_all_sets_of_the_kernel(host):
    host.pod("a")
    result = host.add("a", host.bridge("10.88.0.0/24", **GUARDED))
    firewall = {"cniVersion": "1.0.0", "name": "net", "type": "firewall", "ingressPolicy": "isolated"}
    host.add("a", firewall | {"prevResult": result, "dataDir": str(host.records)})
    for family, named in SETS.items():
        words = ["nft", "list", "table", family, "podwire"]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")
        there = {each.split()[1] for each in told if each.strip().startswith(("set ", "map "))}
        assert there == set(named)
