"""URLs that are no resource: discovery, OpenAPI, version, health, the token issuer."""

import gzip

import msgspec
import pytest

from podwire.kinds.schema.discovery import storage_version_hash
from tests.apiserver.support import answer_when

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OLD_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


# --- discovery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api", "/api/"])
async def test_discovery_lists_the_versions_of_the_core_group(api, path):
    reply = await api.get(path)

    assert (reply.status, reply.body["kind"], reply.body["versions"]) == (200, "APIVersions", ["v1"])


async def test_groups_are_listed(api):
    reply = await api.get("/apis")

    names = {group["name"] for group in reply.body["groups"]}
    assert reply.body["kind"] == "APIGroupList"
    assert {"apps", "batch", "apiextensions.k8s.io", "coordination.k8s.io", "resource.k8s.io"} <= names


async def test_discovery_lists_the_versions_of_a_group(api):
    reply = await api.get("/apis/autoscaling")

    assert reply.body["kind"] == "APIGroup"
    assert {version["version"] for version in reply.body["versions"]} == {"v1", "v2"}
    assert reply.body["preferredVersion"]["version"] == "v2"


async def test_discovery_lists_the_resources_of_a_version(api):
    reply = await api.get("/api/v1")

    resources = {resource["name"]: resource for resource in reply.body["resources"]}
    assert reply.body["kind"] == "APIResourceList"
    assert resources["pods"]["kind"] == "Pod"
    assert resources["pods"]["namespaced"]
    assert resources["pods"]["shortNames"] == ["po"]
    assert resources["pods/eviction"]["group"] == "policy"
    assert "deletecollection" not in resources["namespaces"]["verbs"]


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_aggregated_discovery_is_one_answer_with_a_tag(api, path):
    reply = await api.get(path, accept=f"{AGGREGATED},application/json")

    assert reply.body["kind"] == "APIGroupDiscoveryList"
    assert reply.headers["content-type"] == AGGREGATED
    assert reply.headers["etag"]
    assert reply.headers["vary"] == "Accept"
    again = await api.get(
        path, accept=f"{AGGREGATED},application/json", headers={"if-none-match": reply.headers["etag"]}
    )
    assert (again.status, again.raw) == (304, b"")


async def test_a_client_that_knows_only_the_old_form_gets_the_plain_list(api):
    reply = await api.get("/apis", accept=f"{OLD_AGGREGATED},application/json")

    assert reply.body["kind"] == "APIGroupList"


async def test_custom_resources_appear_in_discovery_and_change_its_tag(api, definition):
    before = await api.get("/apis", accept=AGGREGATED)

    await api.made(DEFINITIONS, definition())
    reply = await answer_when(lambda: api.get("/apis/example.com/v1"), lambda reply: reply.status == 200)

    resources = {resource["name"] for resource in reply.body["resources"]}
    assert resources == {"widgets", "widgets/status"}
    after = await api.get("/apis", accept=AGGREGATED)
    assert "example.com" in {item["metadata"]["name"] for item in after.body["items"]}
    assert after.headers["etag"] != before.headers["etag"]


@pytest.mark.parametrize("path", ["/api/v9", "/apis/none", "/apis/none/v1", "/apis/apps/v9", "/apix"])
async def test_an_unknown_path_is_a_plain_404(api, path):
    reply = await api.get(path)

    assert (reply.status, reply.body) == (404, "404 page not found\n")


async def test_the_root_lists_the_paths(api):
    reply = await api.get("/")

    assert reply.body["paths"] == sorted(reply.body["paths"])
    assert {"/api/v1", "/apis/apps/v1", "/apis/apps", "/healthz", "/version", "/openapi/v3"} <= {*reply.body["paths"]}


async def test_nothing_is_written_there(api):
    for path in ("/api", "/apis/apps/v1", "/version", "/openapi/v3"):
        assert (await api.post(path, {})).status == 405


async def test_a_path_that_means_nothing_is_not_found(api):
    assert (await api.get("/nonsense")).status == 404


# --- OpenAPI ----------------------------------------------------------------------------------------------------------


async def test_the_openapi_index_leads_to_documents_that_may_be_kept_for_ever(api):
    index = await api.get("/openapi/v3")
    assert index.headers["cache-control"] == "no-cache, private"
    url = index.body["paths"]["api/v1"]["serverRelativeURL"]
    assert "?hash=" in url

    reply = await api.get(url)

    assert (reply.status, reply.body["openapi"]) == (200, "3.0.0")
    assert "immutable" in reply.headers["cache-control"]
    assert reply.headers["etag"]
    again = await api.get(url, headers={"if-none-match": reply.headers["etag"]})
    assert (again.status, again.raw) == (304, b"")


async def test_a_large_document_is_compressed_if_the_client_accepts_it(api):
    plain = await api.get("/openapi/v3/api/v1")

    packed = await api.get("/openapi/v3/api/v1", headers={"accept-encoding": "gzip"})

    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(packed.raw) == plain.raw
    assert len(packed.raw) < len(plain.raw) / 4


async def test_a_document_that_is_not_there_is_not_found(api):
    assert (await api.get("/openapi/v3/apis/none/v1")).status == 404
    assert (await api.get("/openapi/v4")).status == 404


async def test_the_old_openapi_is_one_document_that_follows_the_definitions(api, definition):
    before = await api.get("/openapi/v2")
    tag = {"if-none-match": before.headers["etag"]}
    assert before.body["swagger"] == "2.0"
    assert (await api.get("/openapi/v2", headers=tag)).status == 304

    await api.made(DEFINITIONS, definition())
    after = await answer_when(lambda: api.get("/openapi/v2", headers=tag), lambda reply: reply.status == 200)

    assert "com.example.v1.Widget" in after.body["definitions"]
    assert "/apis/example.com/v1/namespaces/{namespace}/widgets" in after.body["paths"]
    assert "io.k8s.api.core.v1.Pod" in after.body["definitions"]


async def test_the_old_openapi_is_compressed_if_the_client_accepts_it(api):
    packed = await api.get("/openapi/v2", headers={"accept-encoding": "gzip"})

    assert gzip.decompress(packed.raw) == (await api.get("/openapi/v2")).raw


# --- version, health, issuer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/version", "/version/"])
@pytest.mark.parametrize("user", [None], ids=["anybody"])
async def test_the_version_is_public(api, path, user):
    reply = await api.get(path, user=user)

    assert (reply.body["major"], reply.body["minor"]) == ("1", "36")
    assert reply.body["gitVersion"].startswith("v1.36.")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_is_public_and_one_word(api, path):
    reply = await api.get(path, user=None)

    assert (reply.status, reply.body) == (200, "ok")
    assert reply.headers["content-type"].startswith("text/plain")


async def test_health_can_be_verbose(serve):
    api = await serve(checks={"store": lambda: ""})

    reply = await api.get("/readyz?verbose")

    assert reply.body == "[+]ping ok\n[+]store ok\nreadyz check passed\n"
    assert (await api.get("/readyz/store")).body == "ok"


async def test_a_failed_check_is_reported(serve):
    api = await serve(checks={"store": lambda: "it is full"})

    reply = await api.get("/readyz")

    assert reply.status == 500
    assert reply.body == "[+]ping ok\n[-]store failed: it is full\nreadyz check failed\n"
    assert (await api.get("/readyz/store")).status == 500
    assert (await api.get("/readyz/ping")).status == 200
    assert (await api.get("/readyz?exclude=store")).status == 200


async def test_a_server_that_a_restart_would_not_help_is_alive_and_not_ready(serve):
    api = await serve(checks={"store": lambda: "it is full"}, live_checks={"store": lambda: ""})

    assert [(await api.get(path)).status for path in ("/livez", "/healthz", "/readyz")] == [200, 200, 500]
    assert [(await api.get(f"{path}/store")).status for path in ("/livez", "/readyz")] == [200, 500]


@pytest.mark.parametrize("path", ["/healthz/nothing", "/healthzz", "/livezone", "/readyz2"])
async def test_an_unknown_check_is_not_found(api, path):
    assert (await api.get(path)).status == 404


async def test_others_can_verify_the_servers_tokens(api):
    discovery = await api.get("/.well-known/openid-configuration")
    keys = await api.get("/openid/v1/jwks")

    assert discovery.body["issuer"].startswith("https://")
    assert discovery.body["jwks_uri"].endswith("/openid/v1/jwks")
    assert keys.body["keys"][0]["use"] == "sig"


async def test_discovery_is_not_for_everybody(api):
    for path in ("/api", "/apis", "/openapi/v3", "/"):
        reply = await api.get(path, user=None)
        assert reply.status == 403
        assert reply.message == f'forbidden: User "system:anonymous" cannot get path "{path}"'


async def test_the_documents_are_json(api):
    for path in ("/api", "/apis", "/api/v1", "/version", "/openapi/v3", "/.well-known/openid-configuration"):
        reply = await api.get(path)
        assert reply.headers["content-type"] == "application/json"
        assert msgspec.json.decode(reply.raw)


@pytest.mark.parametrize(
    ("path", "resource", "expected"),
    [
        pytest.param("/api/v1", "pods", "xPOwRZ+Yhw8=", id="core"),
        pytest.param("/apis/apps/v1", "deployments", "8aSe+NMegvE=", id="a group"),
        pytest.param("/apis/events.k8s.io/v1", "events", "r2yiGXH7wu8=", id="stored in another group"),
        pytest.param(
            "/apis/autoscaling/v1", "horizontalpodautoscalers", "qwQve8ut294=", id="stored in another version"
        ),
        pytest.param("/api/v1", "bindings", None, id="not stored"),
        pytest.param("/api/v1", "pods/status", None, id="a subresource"),
    ],
)
async def test_discovery_has_the_hash_of_the_storage_version(api, path, resource, expected):
    resources = {one["name"]: one for one in (await api.get(path)).body["resources"]}

    assert resources[resource].get("storageVersionHash") == expected


async def test_versions_of_a_custom_resource_share_the_hash_of_the_stored_one(api, definition):
    crd = definition()
    second = {**crd["spec"]["versions"][0], "name": "v9", "storage": False}
    crd["spec"]["versions"].append(second)
    await api.made(DEFINITIONS, crd)
    group, first = crd["spec"]["group"], crd["spec"]["versions"][0]["name"]
    replies = [
        await answer_when(lambda url=f"/apis/{group}/{version}": api.get(url), lambda reply: reply.status == 200)
        for version in (first, "v9")
    ]

    expected = storage_version_hash(f"{group}/{first}", crd["spec"]["names"]["kind"])
    assert {reply.body["resources"][0]["storageVersionHash"] for reply in replies} == {expected}
