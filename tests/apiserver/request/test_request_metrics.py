"""/metrics of the API server: requests by upstream's names, and labels that no client can make up."""

import pytest

from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.request.request_metrics import row_of
from podwire.protocols.k8sapi.server_side import Certificate, Request
from tests.apiserver.support import CONFIGS, PODS

NOBODY = Certificate("nobody")


async def lines(api) -> list[str]:
    reply = await api.get("/metrics")
    assert reply.status == 200
    return reply.raw.decode().splitlines()


def count(rows: list[str], name: str, *labels: str) -> float:
    found = [row for row in rows if row.startswith(f"{name}{{") and all(label in row for label in labels)]
    return sum(float(row.rpartition(" ")[2]) for row in found)


async def test_requests_are_counted_by_verb_resource_scope_and_code(api, config):
    await api.made(CONFIGS, config("one"))
    await api.get(f"{CONFIGS}/one")
    await api.get(f"{CONFIGS}/two")
    await api.get(CONFIGS)
    rows = await lines(api)
    common = ('version="v1"', 'resource="configmaps"', 'component="apiserver"')
    assert count(rows, "apiserver_request_total", 'verb="POST"', 'scope="resource"', 'code="201"', *common) == 1
    assert count(rows, "apiserver_request_total", 'verb="GET"', 'scope="resource"', 'code="404"', *common) == 1
    assert count(rows, "apiserver_request_total", 'verb="LIST"', 'scope="namespace"', 'code="200"', *common) == 1
    assert count(rows, "apiserver_request_duration_seconds_count", 'verb="GET"', *common) == 2
    assert count(rows, "apiserver_resource_objects", 'resource="configmaps"') >= 1
    assert 'apiserver_current_inflight_requests{request_kind="readOnly"} 1' in rows
    assert 'apiserver_current_inflight_requests{request_kind="mutating"} 0' in rows


async def test_a_watch_is_a_long_running_request_until_it_ends(api):
    watching = await api.watch(CONFIGS)
    assert count(await lines(api), "apiserver_longrunning_requests", 'verb="WATCH"', 'resource="configmaps"') == 1
    await watching.close()
    assert count(await lines(api), "apiserver_longrunning_requests", 'verb="WATCH"', 'resource="configmaps"') == 0


@pytest.mark.parametrize("path", [f"{PODS}/a/made-up", "/api/v1/namespaces/x/made-up", "/apis/made-up/v1/things"])
async def test_names_of_a_client_are_never_labels(api, path):
    await api.get(path)
    assert not [row for row in await lines(api) if "made-up" in row]


async def test_metrics_need_the_right_to_read_them(api):
    assert (await api.get("/metrics", user=NOBODY)).status == 403


@pytest.mark.parametrize(
    ("verb", "method", "headers", "subresource", "shown"),
    [
        ("create", "POST", {}, "", "POST"),
        ("update", "PUT", {}, "status", "PUT"),
        ("patch", "PATCH", {}, "", "PATCH"),
        ("patch", "PATCH", {"content-type": "application/apply-patch+yaml"}, "", "APPLY"),
        ("get", "GET", {}, "exec", "CONNECT"),
        ("get", "GET", {}, "log", "GET"),
        ("deletecollection", "DELETE", {}, "", "DELETECOLLECTION"),
        ("brew", "BREW", {}, "", "other"),
    ],
)
def test_verbs_are_shown_as_upstream_does(verb, method, headers, subresource, shown):
    attributes = Attributes(verb=verb, version="v1", resource="pods", subresource=subresource, namespace="a", name="b")
    assert row_of(Request(method=method, path="/", headers=headers), attributes)[0] == shown
    assert row_of(Request(method="BREW", path="/"), None)[0] == "other"
