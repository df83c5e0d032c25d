"""Addresses of pods for Services: tables."""

import msgspec
import pytest

from podwire.controllers.endpoints.addresses import (
    endpoint_of,
    families_of,
    ports_of,
    read_pod,
    subsets_of,
    truncated,
)


def service(**spec):
    given = {"clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], "selector": {"app": "web"}, **spec}
    return {"metadata": {"name": "web", "namespace": "shop", "uid": "s-1"}, "spec": given}


def pod(name="a", ip="10.0.0.1", *, ready=True, deleting=False, phase="Running", ips=None, **spec):
    metadata = {"name": name, "namespace": "shop", "uid": f"u-{name}"}
    if deleting:
        metadata["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    ports = [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    status = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "podIPs": [{"ip": address} for address in ips or ([ip] if ip else [])],
    }
    given = {"nodeName": "n1", "containers": [{"name": "c", "ports": ports}], **spec}
    return read_pod(msgspec.json.encode({"metadata": metadata, "spec": given, "status": status}))


@pytest.mark.parametrize(
    ("ready", "deleting", "published", "conditions"),
    [
        (True, False, False, (True, True, False)),
        (False, False, False, (False, False, False)),
        (True, True, False, (False, True, True)),
        (False, True, False, (False, False, True)),
        (False, False, True, (True, False, False)),
        (True, True, True, (True, True, True)),
    ],
)
def test_conditions_of_an_endpoint(ready, deleting, published, conditions):
    made = endpoint_of(service(publishNotReadyAddresses=published), pod(ready=ready, deleting=deleting), "IPv4", {})
    assert tuple(made["conditions"][name] for name in ("ready", "serving", "terminating")) == conditions


def test_an_endpoint_has_node_zone_name_and_hints():
    given = service(trafficDistribution="PreferSameNode")
    made = endpoint_of(given, pod(hostname="a-0", subdomain="web"), "IPv4", {"n1": "east"})
    assert (made["nodeName"], made["zone"], made["hostname"]) == ("n1", "east", "a-0")
    assert made["hints"] == {"forZones": [{"name": "east"}], "forNodes": [{"name": "n1"}]}
    assert made["targetRef"] == {"kind": "Pod", "namespace": "shop", "name": "a", "uid": "u-a"}
    assert "hostname" not in endpoint_of(given, pod(hostname="a-0", subdomain="other"), "IPv4", {})


def test_each_family_has_its_addresses():
    dual = pod(ips=["10.0.0.1", "FD00:0::1"])
    given = service(ipFamilies=["IPv6", "IPv4"])
    assert families_of(given) == ["IPv6", "IPv4"]
    assert endpoint_of(given, dual, "IPv6", {})["addresses"] == ["fd00::1"]
    assert endpoint_of(given, pod(), "IPv6", {}) is None
    assert subsets_of(given, [dual])[0:1] == []  # no ports and not headless
    headless = service(ipFamilies=["IPv6"], clusterIP="None")
    assert subsets_of(headless, [dual])[0]["addresses"][0]["ip"] == "fd00::1"


@pytest.mark.parametrize(("phase", "ip", "reachable"), [("Running", "10.0.0.1", True), ("Failed", "10.0.0.1", False),
                                                        ("Pending", "", False)])  # fmt: skip
def test_pods_that_ended_or_have_no_address_are_left_out(phase, ip, reachable):
    assert pod(phase=phase, ip=ip).reachable(terminating=True) is reachable
    assert not pod(phase=phase, ip=ip, deleting=True).reachable(terminating=False)


def test_named_ports_are_looked_up_in_the_pod():
    ports = [{"name": "web", "port": 80, "targetPort": "http"}, {"name": "none", "port": 81, "targetPort": "other"},
             {"name": "number", "port": 82, "targetPort": 9090, "appProtocol": "h2c"}]  # fmt: skip
    assert ports_of(service(ports=ports), pod()) == [
        {"name": "web", "port": 8080, "protocol": "TCP"},
        {"name": "number", "port": 9090, "protocol": "TCP", "appProtocol": "h2c"},
    ]


def test_subsets_group_addresses_by_ports_and_readiness():
    given = service(ports=[{"name": "web", "port": 80, "targetPort": "http"}])
    (subset,) = subsets_of(given, [pod("b", "10.0.0.2"), pod("a"), pod("c", "10.0.0.3", ready=False),
                                   pod("d", "10.0.0.4", deleting=True)])  # fmt: skip
    assert [row["ip"] for row in subset["addresses"]] == ["10.0.0.1", "10.0.0.2"]
    assert [row["ip"] for row in subset["notReadyAddresses"]] == ["10.0.0.3"]
    assert subset["ports"] == [{"name": "web", "port": 8080, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ([(5, 5)], [(5, 5)]),
        ([(8, 8)], [(8, 2)]),
        ([(20, 5)], [(10, 0)]),
        ([(9, 0), (9, 3)], [(5, 0), (5, 0)]),
        ([(2, 6), (2, 6)], [(2, 3), (2, 3)]),
    ],
)
def test_endpoints_above_their_capacity_lose_unready_addresses_first(sizes, kept):
    subsets = [
        {
            "addresses": [{"ip": f"10.0.0.{number}"} for number in range(ready)],
            "notReadyAddresses": [{"ip": f"10.0.1.{number}"} for number in range(unready)],
        }
        for ready, unready in sizes
    ]
    rows, over = truncated(subsets, 10)
    assert [(len(row.get("addresses", ())), len(row.get("notReadyAddresses", ()))) for row in rows] == kept
    assert over is (sum(map(sum, sizes)) > 10)
