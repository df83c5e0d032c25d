"""Objects of the API as the proxy reads them."""

import json

import msgspec
import pytest

from podwire.proxy.values import READY, SERVING, TERMINATING, ServiceObject, SliceObject, read_services, read_slices


def service(status=None, **spec):
    made = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"clusterIP": "10.96.0.1", **spec}}
    return msgspec.convert({**made, **({"status": status} if status else {})}, ServiceObject).reduced()


@pytest.mark.parametrize(
    "spec",
    [{"clusterIP": "None"}, {"clusterIP": ""}, {"type": "ExternalName", "externalName": "example.com"}],
    ids=["headless", "no address yet", "external name"],
)
def test_a_service_without_an_address_is_not_served(spec):
    assert service(**spec) is None


def test_a_service_is_reduced_to_what_decides():
    found = service(
        clusterIPs=["10.96.0.1", "fd00::1"],
        ports=[{"port": 80, "targetPort": "web", "nodePort": 30080}, {"port": 53, "protocol": "UDP", "name": "dns"}],
        externalIPs=["192.0.2.1", "127.0.0.1", "rubbish"],
        sessionAffinity="ClientIP",
        sessionAffinityConfig={"clientIP": {"timeoutSeconds": 60}},
        externalTrafficPolicy="Local",
        internalTrafficPolicy="Local",
        healthCheckNodePort=30099,
        loadBalancerSourceRanges=["10.0.0.0/8", " fd00::/8"],
    )
    assert found.cluster_ips == ("10.96.0.1", "fd00::1")
    assert [(port.name, port.protocol, port.number, port.node_port) for port in found.ports] == [
        ("", 6, 80, 30080),
        ("dns", 17, 53, 0),
    ]
    assert found.external_ips == ("192.0.2.1",)
    assert (found.affinity, found.external_local, found.internal_local, found.health_port) == (60, True, True, 30099)
    assert [str(network) for network in found.sources] == ["10.0.0.0/8", "fd00::/8"]


def test_only_addresses_of_a_load_balancer_that_nodes_serve_count():
    ingress = [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2", "ipMode": "Proxy"}, {"hostname": "lb.example"}]
    found = service({"loadBalancer": {"ingress": ingress}}, type="LoadBalancer")
    assert found.balancer_ips == ("192.0.2.1",)
    assert service({"loadBalancer": {"ingress": ingress}}, type="ClusterIP").balancer_ips == ()


def slice_(endpoints, address_type="IPv4", labels=None, ports=None):
    meta = {"name": "web-1", "namespace": "shop", "labels": labels or {"kubernetes.io/service-name": "web"}}
    given = {"metadata": meta, "addressType": address_type, "endpoints": endpoints, "ports": ports}
    return msgspec.convert(given, SliceObject).reduced()


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        (None, READY | SERVING),
        ({}, READY | SERVING),
        ({"ready": False}, 0),
        ({"ready": False, "serving": True, "terminating": True}, SERVING | TERMINATING),
        ({"ready": True, "serving": None}, READY | SERVING),
    ],
)
def test_conditions_that_are_not_given_mean_ready(conditions, state):
    (endpoint,) = slice_([{"addresses": ["10.1.0.1"], "conditions": conditions}]).endpoints
    assert endpoint.state == state


def test_endpoints_that_cannot_be_reached_are_left_out():
    addresses = (["10.1.0.1", "10.1.0.2"], ["fd00::1"], ["224.0.0.1"], ["rubbish"], [])
    found = slice_([{"addresses": address} for address in addresses])
    assert [endpoint.address for endpoint in found.endpoints] == [bytes((10, 1, 0, 1))]


def test_a_slice_of_nobody_or_of_names_is_not_used():
    assert slice_([], labels={"app": "web"}) is None
    assert slice_([], address_type="FQDN") is None


def test_a_page_has_its_objects_the_next_token_and_the_version():
    page = {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": None}
    assert read_services(json.dumps(page).encode()) == ([], "more", "7")
    assert read_slices(json.dumps(page).encode()) == ([], "more", "7")
