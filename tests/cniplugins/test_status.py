"""STATUS: whether an ADD would work, in words; nothing is changed by asking."""

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.values import Veth


@pytest.fixture(params=["in process", "daemon"])
def way(request):
    return request.param


def snapshot(host):
    with KernelNetwork() as here:
        links = sorted(link.name for link in here.links.list())
    return host.left(), links, sorted(str(path) for path in host.root.glob("ipam/**/*"))


def status(host, config):
    before = snapshot(host)
    try:
        assert host.call("STATUS", "", config, "") is None
    finally:
        assert snapshot(host) == before


def test_status_succeeds_before_and_after_the_first_pod(host):
    config = host.bridge(ipMasq=True)
    portmap = host.portmap({}) | {"prevResult": None}
    status(host, config)
    status(host, portmap)
    status(host, {"cniVersion": "1.1.0", "name": "lo", "type": "loopback"})
    host.pod("a")
    host.add("a", config)
    status(host, config)
    status(host, portmap)


def test_status_fails_while_the_pool_is_full(host, refused):
    config = host.bridge("10.88.0.0/30")
    for name in ("a", "b"):
        host.pod(name)
    host.add("a", config)
    for item in (config, config | {"type": "host-local"}):
        with refused(50, r"no IP addresses available in range set: 10\.88\.0\.1-10\.88\.0\.2"):
            status(host, item)
    with refused(11, "no IP addresses available"):
        host.add("b", config)
    host.delete("a", config)
    status(host, config)


def test_status_reports_a_link_that_is_not_a_bridge(host, refused):
    config = host.bridge()
    with KernelNetwork() as here:
        here.links.add(Veth("cni0", "other"))
    with refused(50, 'cni0" already exists but is not a bridge'):
        status(host, config)
    with KernelNetwork() as here:
        here.links.delete("cni0")
        host.pod("a")
        host.add("a", config)
        here.links.delete("cni0")
        here.links.add(Veth("cni0", "other"))
    with refused(51, 'cni0" already exists but is not a bridge'):
        status(host, config)


@pytest.mark.parametrize("key", ["records", "leases"])
def test_status_reports_an_unwritable_directory(host, refused, key, tmp_path):
    (tmp_path / "file").write_text("")
    config = host.bridge()
    if key == "records":
        config["dataDir"] = str(tmp_path / "file" / "x")
    else:
        config["ipam"]["dataDir"] = str(tmp_path / "file" / "x")
    with refused(50, "file is not a directory"):
        status(host, config)


def test_status_fails_without_nft_where_it_is_needed(host, refused, monkeypatch):
    host.way = "in process"
    monkeypatch.setattr("podwire.linux.nft.table._ENVIRONMENT", {"PATH": "/nowhere"})
    status(host, host.bridge())
    guarded = [host.bridge(macspoofchk=True), host.bridge(ipspoofchk=True)]
    for config in (host.bridge(ipMasq=True), host.portmap({}) | {"prevResult": None}, *guarded):
        with refused(50, "nft"):
            status(host, config)


def test_existing_table_needs_no_nft(host, monkeypatch):
    host.way = "in process"
    host.pod("a")
    host.add("a", host.bridge(ipMasq=True))
    monkeypatch.setattr("podwire.linux.nft.table._ENVIRONMENT", {"PATH": "/nowhere"})
    status(host, host.bridge(ipMasq=True))


def test_status_succeeds_after_rules_were_flushed(host):
    host.pod("a")
    host.add("a", host.bridge(ipMasq=True))
    KernelRuleset().delete_table()
    status(host, host.bridge(ipMasq=True))


def test_status_reports_a_missing_ipam_plugin(host, refused):
    with refused(50, "missing is not in CNI_PATH"):
        status(host, host.bridge() | {"ipam": {"type": "missing"}})
