"""Records of a name of the cluster."""

import pytest

from podwire.dns.zone import reverse_address
from podwire.protocols.dns.codes import AAAA, CNAME, NOERROR, NS, NXDOMAIN, PTR, SOA, SRV, TXT, A
from podwire.protocols.dns.queries import name_of, text_of
from tests.dns.conftest import put, service, slice_

Z = "cluster.local"


def shown(record):
    data = record.data
    if record.type in (CNAME, PTR, NS):
        return text_of(data)
    return (*data[:3], text_of(data[3])) if record.type == SRV else data


def answered(zone, name, type_):
    answer = zone.answer(name_of(name), type_)
    assert all(record.ttl == 30 for record in answer.records)
    return [shown(record) for record in answer.records] or {NOERROR: "nodata", NXDOMAIN: "nxdomain"}[answer.rcode]


WEB, DB = f"web.shop.svc.{Z}", f"db.shop.svc.{Z}"


@pytest.mark.parametrize(
    ("name", "type_", "expected"),
    [
        (WEB, A, ["10.96.0.7"]),
        (WEB, AAAA, "nodata"),
        (WEB, TXT, "nodata"),
        (f"WEB.Shop.SVC.{Z}", A, ["10.96.0.7"]),
        (f"dual.shop.svc.{Z}", A, ["10.96.0.8"]),
        (f"dual.shop.svc.{Z}", AAAA, ["fd00::8"]),
        (f"_http._tcp.{WEB}", SRV, [(0, 100, 80, f"{WEB}.")]),
        (f"_http._tcp.{WEB}", A, "nodata"),
        (f"_http._udp.{WEB}", SRV, "nxdomain"),
        (f"_tcp.{WEB}", A, "nodata"),
        (f"_udp.{WEB}", A, "nxdomain"),
        (f"_dns._udp.dual.shop.svc.{Z}", SRV, [(0, 100, 53, f"dual.shop.svc.{Z}.")]),
        (f"_._tcp.dual.shop.svc.{Z}", SRV, "nxdomain"),
        (WEB, SRV, [(0, 100, 80, f"{WEB}.")]),
        (f"10-1-0-20.{WEB}", A, ["10.1.0.20"]),
        (DB, A, ["10.1.0.1", "10.1.0.2", "10.1.0.9"]),
        (DB, AAAA, ["fd00:1::1"]),
        (f"db-0.{DB}", A, ["10.1.0.1"]),
        (f"db-0.{DB}", AAAA, ["fd00:1::1"]),
        (f"db-1.{DB}", AAAA, "nodata"),
        (f"db-2.{DB}", A, "nxdomain"),
        (f"10-1-0-9.{DB}", A, ["10.1.0.9"]),
        (f"a.db-0.{DB}", A, "nxdomain"),
        (
            f"_sql._tcp.{DB}",
            SRV,
            [(0, 33, 5432, f"db-0.{DB}."), (0, 33, 5432, f"db-1.{DB}."), (0, 33, 5432, f"10-1-0-9.{DB}.")],
        ),
        (f"empty.shop.svc.{Z}", A, "nxdomain"),
        (f"none.shop.svc.{Z}", A, "nxdomain"),
        (f"web.nowhere.svc.{Z}", A, "nxdomain"),
        (f"shop.svc.{Z}", A, "nodata"),
        (f"nowhere.svc.{Z}", A, "nxdomain"),
        (f"svc.{Z}", A, "nodata"),
        (f"out.shop.svc.{Z}", A, ["www.example.com."]),
        (f"a.out.shop.svc.{Z}", A, "nxdomain"),
        (f"number.shop.svc.{Z}", A, "nxdomain"),
        (f"10-1-2-3.shop.pod.{Z}", A, ["10.1.2.3"]),
        (f"10-1-2-3.shop.pod.{Z}", AAAA, "nodata"),
        (f"fd00--1.shop.pod.{Z}", AAAA, ["fd00::1"]),
        (f"10-1-2-300.shop.pod.{Z}", A, "nxdomain"),
        (f"10-1-2-3.nowhere.pod.{Z}", A, "nxdomain"),
        (f"a.10-1-2-3.shop.pod.{Z}", A, "nxdomain"),
        (f"shop.pod.{Z}", A, "nodata"),
        (f"pod.{Z}", A, "nodata"),
        (f"dns-version.{Z}", TXT, ["1.1.0"]),
        (f"dns-version.{Z}", A, "nodata"),
        (f"ns.dns.{Z}", A, ["10.96.0.10"]),
        (f"dns.{Z}", A, "nodata"),
        (Z, NS, [f"ns.dns.{Z}."]),
        (Z, A, "nodata"),
        (f"web.{Z}", A, "nxdomain"),
    ],
)
def test_a_name_has_its_records_or_the_right_kind_of_none(zone, name, type_, expected):
    assert answered(zone, name, type_) == expected


def test_the_start_of_authority_has_a_serial_and_the_negative_ttl(zone):
    (record,) = zone.answer(name_of(Z), SOA).records
    assert record == zone.soa()
    assert record.data[2:] == (7, 7200, 1800, 86400, 30)


def test_srv_records_have_the_addresses_of_their_targets(zone):
    answer = zone.answer(name_of(f"_sql._tcp.{DB}"), SRV)
    assert {(text_of(record.name), record.data) for record in answer.additional} == {
        (f"db-0.{DB}.", "10.1.0.1"),
        (f"db-0.{DB}.", "fd00:1::1"),
        (f"db-1.{DB}.", "10.1.0.2"),
        (f"10-1-0-9.{DB}.", "10.1.0.9"),
    }


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("7.0.96.10.in-addr.arpa", [f"{WEB}."]),
        ("1.0.1.10.in-addr.arpa", [f"db-0.{DB}."]),
        ("9.0.1.10.in-addr.arpa", [f"10-1-0-9.{DB}."]),
        ("20.0.1.10.in-addr.arpa", [f"10-1-0-20.{WEB}."]),
        (".".join(reversed("fd000001000000000000000000000001")) + ".ip6.arpa", [f"db-0.{DB}."]),
    ],
)
def test_an_address_of_the_cluster_has_a_name(zone, address, expected):
    assert [shown(record) for record in zone.reverse(name_of(address)).records] == expected


def test_the_name_of_an_endpoint_does_not_end_in_a_hyphen(zone, index):
    put(index, slice_("db-7", [("2001:db8::", "", True)], family="IPv6"))
    assert [shown(record) for record in zone.answer(name_of(f"2001-db8--0.{DB}"), AAAA).records] == ["2001:db8::"]
    assert zone.answer(name_of(f"2001-db8--.{DB}"), AAAA).negative


@pytest.mark.parametrize("name", ["3.0.1.10.in-addr.arpa", "1.10.in-addr.arpa", "x.0.1.10.in-addr.arpa", "ip6.arpa"])
def test_an_address_of_others_is_left_to_others(zone, name):
    assert zone.reverse(name_of(name)) is None


def test_reverse_names_are_read_in_both_families():
    assert reverse_address(name_of("4.3.2.1.in-addr.arpa")) == "1.2.3.4"
    assert reverse_address(name_of(".".join("0" * 31 + "g") + ".ip6.arpa")) is None


def test_names_follow_the_objects(index, zone):
    put(index, service(ips=("10.96.0.99",)))
    assert answered(zone, WEB, A) == ["10.96.0.99"]
    assert zone.reverse(name_of("7.0.96.10.in-addr.arpa")) is None
    put(index, slice_("db-1", [("10.1.0.5", "db-5", True)]))
    assert answered(zone, DB, A) == ["10.1.0.9", "10.1.0.2", "10.1.0.5"]
    assert answered(zone, f"db-1.{DB}", A) == ["10.1.0.2"]
    for name in ("db-1", "db-2", "db-6"):
        assert index.set_slice(("shop", name), None)
    assert answered(zone, DB, A) == "nxdomain"
    assert zone.reverse(name_of("2.0.1.10.in-addr.arpa")) is None
    assert index.set_service(("shop", "web"), None)
    assert answered(zone, WEB, A) == "nxdomain"
    assert index.set_namespace("shop", exists=False)
    assert answered(zone, f"shop.svc.{Z}", A) == "nxdomain"


def test_an_object_that_says_the_same_changes_nothing(index):
    assert not index.set_service(("shop", "web"), service())
    assert not index.set_namespace("shop", exists=True)
    assert not index.set_slice(("shop", "nothing"), None)


def test_unusable_addresses_are_left_out(index, zone):
    put(index, service("odd", ips=("10.0.0.300", "10.0.0.3")))
    assert answered(zone, f"odd.shop.svc.{Z}", A) == ["10.0.0.3"]
    put(index, slice_("names", [("a.example", "", True)], service="odd", family="FQDN"))
    assert list(index.endpoints(("shop", "odd"))) == []
