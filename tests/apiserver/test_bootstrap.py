"""Objects of a new cluster before the first request."""

import ipaddress
import re

import pytest

from podwire.apiserver import bootstrap
from podwire.store.memory import MemoryStore
from tests.apiserver.support import TABLE

NAMESPACES = "/api/v1/namespaces"
SERVICE = "/api/v1/namespaces/default/services/kubernetes"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"


async def test_the_four_namespaces_are_there(api):
    listed = (await api.get(NAMESPACES)).body["items"]

    assert [item["metadata"]["name"] for item in listed] == ["default", "kube-node-lease", "kube-public", "kube-system"]
    for entry in listed:
        assert entry["metadata"]["labels"]["kubernetes.io/metadata.name"] == entry["metadata"]["name"]
        assert entry["spec"]["finalizers"] == ["kubernetes"]
        assert entry["status"]["phase"] == "Active"


async def test_the_systems_priorities_are_there(api):
    listed = (await api.get("/apis/scheduling.k8s.io/v1/priorityclasses")).body["items"]

    assert {item["metadata"]["name"]: item["value"] for item in listed} == {
        "system-node-critical": 2000001000,
        "system-cluster-critical": 2000000000,
    }


async def test_the_service_of_metrics_is_local_and_available(api):
    table = (await api.get("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io", accept=TABLE)).body

    assert table["rows"][0]["cells"][:3] == ["v1beta1.metrics.k8s.io", "Local", "True"]


async def test_components_find_the_authority_that_clients_are_checked_by(api):
    reply = await api.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")

    assert reply.body["data"]["client-ca-file"].startswith("-----BEGIN CERTIFICATE-----")


async def test_a_stock_manager_finds_since_when_uses_of_tokens_are_recorded(api):
    name = "kube-apiserver-legacy-service-account-token-tracking"
    since = (await api.get(f"/api/v1/namespaces/kube-system/configmaps/{name}")).body["data"]["since"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", since)


@pytest.mark.parametrize(("network", "first"), [("10.32.0.0/24", "10.32.0.1"), ("fd00:1::/112", "fd00:1::1")])
async def test_the_servers_own_service_has_the_networks_first_address(serve, network, first):
    api = await serve(service_networks=(ipaddress.ip_network(network),))

    spec = (await api.get(SERVICE)).body["spec"]

    assert spec["clusterIP"] == first
    assert spec["ports"][0] | {"targetPort": 0} == {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 0}


async def test_a_second_start_changes_nothing(serve):
    store = MemoryStore()
    first = await serve(store)
    await first.patch(f"{NAMESPACES}/default", {"metadata": {"labels": {"mine": "yes"}}})
    revision = store.revision

    second = await serve(store, account=False)

    assert store.revision == revision
    assert (await second.get(f"{NAMESPACES}/default")).body["metadata"]["labels"]["mine"] == "yes"


async def test_missing_defaults_are_created_at_the_next_start(serve):
    store = MemoryStore()
    first = await serve(store)
    await first.delete("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical")

    second = await serve(store, account=False)

    assert (await second.get("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical")).status == 200


async def test_the_servers_endpoints_are_published_and_kept_up_to_date(api):
    await bootstrap.advertise(api.assembled.engine, "192.0.2.7", 6443)
    await bootstrap.advertise(api.assembled.engine, "192.0.2.8", 6444)

    subset = (await api.get(ENDPOINTS)).body["subsets"][0]
    one = (await api.get(SLICE)).body
    assert (subset["addresses"], subset["ports"][0]["port"]) == ([{"ip": "192.0.2.8"}], 6444)
    assert (one["endpoints"][0]["addresses"], one["ports"][0]["port"]) == (["192.0.2.8"], 6444)
    assert one["addressType"] == "IPv4"
    assert one["metadata"]["labels"]["kubernetes.io/service-name"] == "kubernetes"


async def test_a_restart_at_the_same_place_writes_nothing(api):
    await bootstrap.advertise(api.assembled.engine, "192.0.2.7", 6443)
    revision = api.store.revision

    await bootstrap.advertise(api.assembled.engine, "192.0.2.7", 6443)

    assert api.store.revision == revision


async def test_a_loopback_address_is_not_published(api):
    await bootstrap.advertise(api.assembled.engine, "127.0.0.1", 6443)

    assert (await api.get(ENDPOINTS)).status == 404
