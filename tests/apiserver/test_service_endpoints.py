"""Endpoint to which a request for a Service is sent."""

import pytest

from podwire.apiserver.service_endpoints import Endpoint, ServiceEndpoints, is_global_unicast
from podwire.protocols.k8sapi.status import ApiError

SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
PODS = "/api/v1/namespaces/default/pods"
PORTS = [{"name": "web", "port": 80}, {"name": "admin", "port": 81}]


def ready(address, *, pod="", is_ready=True, namespace="default"):
    target = {"targetRef": {"kind": "Pod", "namespace": namespace, "name": pod}} if pod else {}
    return {"addresses": [address], "conditions": {"ready": is_ready}, **target}


async def add_slice(api, *endpoints, name="web-1", service="web", family="IPv4", port=8080, port_name="web"):
    labels = {"kubernetes.io/service-name": service}
    body = {"metadata": {"name": name, "labels": labels}, "addressType": family, "endpoints": list(endpoints),
            "ports": [{"name": port_name, "port": port}]}  # fmt: skip
    await api.made(SLICES, body)


@pytest.fixture
async def endpoints(api):
    await api.made(SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": PORTS}})
    return ServiceEndpoints(api.store)


async def refusal(asked):
    with pytest.raises(ApiError) as refused:
        await asked
    return refused.value.code, refused.value.message


async def test_a_ready_endpoint_of_the_services_port_is_chosen(api, endpoints):
    await add_slice(api, ready("10.0.0.1", is_ready=False), ready("10.0.0.2"))
    await add_slice(api, ready("10.0.0.3"), name="other-1", service="other")
    await add_slice(api, ready("10.0.0.4"), name="web-2", port_name="admin", port=9090)

    assert {await endpoints.find("default", "web", 80) for _ in range(20)} == {Endpoint("10.0.0.2", 8080)}
    assert await endpoints.find("default", "web", 81) == Endpoint("10.0.0.4", 9090)


async def test_all_ready_endpoints_are_chosen_in_turn(api, endpoints):
    await add_slice(api, ready("10.0.0.1"), ready("10.0.0.2"))
    await add_slice(api, ready("fd00::1"), name="web-6", family="IPv6")

    chosen = {(await endpoints.find("default", "web", 80)).address for _ in range(200)}
    assert chosen == {"10.0.0.1", "10.0.0.2"}, "the service's first family is preferred"


async def test_an_external_name_is_returned_as_it_is(api, endpoints):
    await api.made(SERVICES, {"metadata": {"name": "far"}, "spec": {"type": "ExternalName", "externalName": "x.org"}})
    assert await endpoints.find("default", "far", 443) == Endpoint("x.org", 443)


async def test_a_service_without_endpoint_port_or_existence_is_refused_with_upstreams_words(endpoints):
    assert await refusal(endpoints.find("default", "web", 80)) == (503, 'no endpoints available for service "web"')
    assert await refusal(endpoints.find("default", "web", 82)) == (503, 'no service port 82 found for service "web"')
    assert await refusal(endpoints.find("default", "no", 80)) == (404, 'services "no" not found')


async def test_the_proxy_of_a_service_reaches_addresses_of_its_pods_only(api, endpoints, pod):
    await api.made(PODS, pod("a"))
    await api.patch(f"{PODS}/a/status", {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}})
    await add_slice(
        api, ready("10.0.0.9"), ready("10.0.0.8", pod="a"), ready("10.0.0.1", pod="a", namespace="kube-system")
    )
    assert (await refusal(endpoints.find_pod("default", "web", "80")))[0] == 503

    await add_slice(api, ready("10.0.0.1", pod="a"), name="web-2")
    for port in ("80", "web"):
        assert await endpoints.find_pod("default", "web", port) == Endpoint("10.0.0.1", 8080)
    assert (await refusal(endpoints.find_pod("default", "web", "none")))[0] == 503


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.0.0.1", True), ("8.8.8.8", True), ("fd00::1", True), ("127.0.0.1", False), ("169.254.169.254", False),
        ("fe80::1", False), ("::1", False), ("::ffff:127.0.0.1", False), ("0.0.0.0", False), ("224.0.0.1", False),
        ("255.255.255.255", False), ("", False), ("example.com", False),
    ],
)  # fmt: skip
def test_only_global_unicast_addresses_are_connected_to(address, allowed):
    assert is_global_unicast(address) is allowed
