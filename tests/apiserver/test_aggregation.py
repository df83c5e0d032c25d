"""Aggregated API servers: availability, forwarding as the front proxy, discovery. A real server over TLS."""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from podwire.apiserver import Pki, aggregation
from podwire.cluster.aggregation_proxy import aggregation_proxy
from podwire.protocols.k8sapi.server_side import Stream
from tests.apiserver.support import Api, answer_when

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
SLICE = "/registry/endpointslices/wardle/api-1"
DOCUMENT = "/openapi/v3/apis/wardle.example.com/v1"
FLUNDERS = "/apis/wardle.example.com/v1/namespaces/default/flunders"
RESOURCES = {
    "kind": "APIResourceList",
    "groupVersion": "wardle.example.com/v1",
    "resources": [
        {
            "name": "flunders",
            "singularName": "flunder",
            "namespaced": True,
            "kind": "Flunder",
            "verbs": ["get", "list"],
        },
        {"name": "flunders/status", "namespaced": True, "kind": "Flunder", "verbs": ["get"]},
    ],
}


class Extension:
    """An API server of its own, which believes headers of the front proxy only."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[tuple[str, str, dict[str, list[str]]]] = []
        self.clients: set[str] = set()
        self.discovery_status = 200
        self.openapi: dict[str, Any] = {}
        self.swagger: dict[str, Any] = {}
        self.slow = asyncio.Event()
        """Set when the slow group was asked for; it never answers."""

    async def handle(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert") or {}
        names = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
        self.clients |= names
        headers = {name.lower(): request.headers.getall(name) for name in request.headers}
        if request.path == "/apis/wardle.example.com/v1":
            return web.json_response(RESOURCES, status=self.discovery_status)
        if request.path == "/apis/slow.example.com/v1":
            self.slow.set()
            await asyncio.Event().wait()
        if request.path == "/openapi/v3":
            return web.json_response(self.openapi, status=200 if self.openapi else 404)
        if request.path == "/openapi/v2":
            return web.json_response(self.swagger, status=200 if self.swagger else 404)
        self.requests.append((request.method, request.path_qs, headers))
        body = (await request.read()).decode()
        return web.json_response({"kind": "Flunder", "sent": body, "method": request.method}, status=201)


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    return Pki.open(tmp_path_factory.mktemp("front"), names=[], ips=[])


@pytest.fixture
async def extension(pki, front, tmp_path) -> AsyncIterator[Extension]:
    certificate, key = pki.issue_server("api", names=["api.wardle.svc"], ips=[])
    for name, text in (("tls.crt", certificate), ("tls.key", key)):
        (tmp_path / name).write_bytes(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    context.load_verify_locations(cadata=front.authority_pem.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    server = Extension()
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


@pytest.fixture
async def api(serve, front) -> AsyncIterator[Api]:
    async with contextlib.AsyncExitStack() as stack:
        yield await serve(aggregated=await stack.enter_async_context(aggregation_proxy(front)))


def api_service(pki: Pki, group: str = "wardle.example.com") -> dict[str, Any]:
    return {
        "metadata": {"name": f"v1.{group}"},
        "spec": {
            "group": group,
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 10,
            "service": {"namespace": "wardle", "name": "api", "port": 443},
            "caBundle": base64.b64encode(pki.authority_pem).decode(),
        },
    }


async def expose(api: Api, extension: Extension) -> None:
    await api.made("/api/v1/namespaces", {"metadata": {"name": "wardle"}})
    ports = {"ports": [{"port": 443}]}
    await api.made("/api/v1/namespaces/wardle/services", {"metadata": {"name": "api"}, "spec": ports})
    endpoints = {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": "api-1", "labels": {"kubernetes.io/service-name": "api"}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": extension.port}],
        "endpoints": [{"addresses": ["127.0.0.1"]}],
    }
    await api.store.create(SLICE, msgspec.json.encode(endpoints))


async def available(api: Api, reason: str) -> dict[str, Any]:
    def condition(reply: Any) -> dict[str, Any]:
        conditions = (reply.body.get("status") or {}).get("conditions") or [{}]
        found: dict[str, Any] = conditions[0]
        return found

    reply = await answer_when(
        lambda: api.get(f"{SERVICES}/v1.wardle.example.com"), lambda reply: condition(reply).get("reason") == reason
    )
    return condition(reply)


async def test_requests_are_forwarded_as_the_front_proxy(api, pki, extension):
    await expose(api, extension)
    await api.made(SERVICES, api_service(pki))
    condition = await available(api, "Passed")
    assert (condition["status"], condition["message"]) == ("True", "all checks passed")

    headers = {"authorization": "Bearer secret", "x-remote-user": "root", "content-length": "8"}
    answer = await api.ask("POST", f"{FLUNDERS}?dryRun=All", b'{"a": 1}', headers=headers)

    assert isinstance(answer, Stream)
    body = msgspec.json.decode(b"".join([chunk async for chunk in answer.chunks]))
    assert (answer.status, body["method"], body["sent"]) == (201, "POST", '{"a": 1}')
    [(_, _, sent)] = extension.requests
    assert sent["x-remote-user"] == ["kubernetes-admin"]
    assert "system:masters" in sent["x-remote-group"]
    assert "authorization" not in sent
    assert extension.clients == {"front-proxy-client"}


async def test_resources_are_announced(api, pki, extension):
    await expose(api, extension)
    await api.made(SERVICES, api_service(pki))
    await available(api, "Passed")

    listed = await api.get("/apis/wardle.example.com/v1")

    assert [one["name"] for one in listed.body["resources"]] == ["flunders", "flunders/status"]
    groups = (await api.get("/apis")).body["groups"]
    assert "wardle.example.com" in [one["name"] for one in groups]
    await api.delete(f"{SERVICES}/v1.wardle.example.com")
    await answer_when(lambda: api.get("/apis/wardle.example.com/v1"), lambda reply: reply.status == 404)
    assert (await api.get(FLUNDERS)).status == 404


async def test_openapi_v3_documents_are_listed_and_forwarded(api, pki, extension):
    url = f"{DOCUMENT}?hash=AB"
    extension.openapi = {
        "paths": {
            "apis/wardle.example.com/v1": {"serverRelativeURL": url},
            "apis/apps/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=theirs"},
        }
    }
    await expose(api, extension)
    own = (await api.get("/openapi/v3")).body["paths"]
    assert (await api.get(DOCUMENT)).status == 404
    await api.made(SERVICES, api_service(pki))
    await available(api, "Passed")

    theirs = {"apis/wardle.example.com/v1": {"serverRelativeURL": url}}
    await answer_when(lambda: api.get("/openapi/v3"), lambda reply: reply.body["paths"] == {**own, **theirs})
    answer = await api.ask("GET", url)

    assert isinstance(answer, Stream)
    assert b'"Flunder"' in b"".join([chunk async for chunk in answer.chunks])
    [(method, path, sent)] = extension.requests
    assert (method, path.partition("?")[0], sent["x-remote-user"]) == ("GET", DOCUMENT, ["kubernetes-admin"])
    await api.delete(f"{SERVICES}/v1.wardle.example.com")
    await answer_when(lambda: api.get("/openapi/v3"), lambda reply: reply.body["paths"] == own)
    assert (await api.get(DOCUMENT)).status == 404


async def test_openapi_v2_documents_are_merged(api, pki, extension):
    path = "/apis/wardle.example.com/v1/namespaces/{namespace}/flunders"
    meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    properties = {"metadata": {"$ref": f"#/definitions/{meta}"}}
    response = {"200": {"description": "OK", "schema": {"$ref": "#/definitions/com.example.Flunder"}}}
    extension.swagger = {
        "swagger": "2.0",
        "paths": {path: {"get": {"responses": response}}, "/apis/": {"get": {"responses": {}}}},
        "definitions": {"com.example.Flunder": {"properties": properties}, meta: {"description": "theirs"}},
    }
    await expose(api, extension)
    own = await api.get("/openapi/v2")
    await api.made(SERVICES, api_service(pki))

    merged = await answer_when(lambda: api.get("/openapi/v2"), lambda reply: path in reply.body["paths"])

    assert merged.headers["etag"] != own.headers["etag"]
    definitions = merged.body["definitions"]
    assert definitions["com.example.Flunder"] == {"properties": {"metadata": {"$ref": f"#/definitions/{meta}_v2"}}}
    assert (definitions[f"{meta}_v2"], definitions[meta]) == ({"description": "theirs"}, own.body["definitions"][meta])
    known = {**own.body["definitions"], "com.example.Flunder": ..., f"{meta}_v2": ...}
    assert set(definitions) == set(known)
    protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    assert b"com.example.Flunder" in (await api.get("/openapi/v2", accept=protobuf)).raw
    await api.delete(f"{SERVICES}/v1.wardle.example.com")
    gone = await answer_when(lambda: api.get("/openapi/v2"), lambda reply: path not in reply.body["paths"])
    assert gone.headers["etag"] == own.headers["etag"]


async def test_a_bad_openapi_v2_document_is_not_merged(api, pki, extension):
    extension.swagger = {"paths": {"/apis/wardle.example.com/v1/x": 1}}
    await expose(api, extension)
    own = await api.get("/openapi/v2")
    await api.made(SERVICES, api_service(pki))
    await available(api, "Passed")
    assert (await api.get("/openapi/v2")).headers["etag"] == own.headers["etag"]


@pytest.mark.parametrize(
    "openapi", [{"paths": []}, {"paths": {"apis/wardle.example.com/v1": {"serverRelativeURL": 1}}}]
)
async def test_a_server_without_a_valid_openapi_index_is_available(api, pki, extension, openapi):
    extension.openapi = openapi
    await expose(api, extension)
    await api.made(SERVICES, api_service(pki))
    await available(api, "Passed")
    assert "apis/wardle.example.com/v1" not in (await api.get("/openapi/v3")).body["paths"]


async def test_a_server_that_is_not_there_is_unavailable(api, pki, extension):
    await api.made(SERVICES, api_service(pki))
    missing = await available(api, "ServiceNotFound")
    assert (missing["status"], missing["message"]) == ("False", 'service/api in "wardle" is not present')

    reply = await api.get(FLUNDERS)

    assert (reply.status, reply.body) == (503, "service unavailable\n")


async def test_an_incomplete_api_service_that_is_stored_does_not_stop_the_others(api, pki, extension):
    """Earlier versions accepted it."""
    broken = {
        "kind": "APIService",
        "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {"name": "broken", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"service": {}},
        "status": {"conditions": [{"status": "True"}]},
    }
    await api.store.create("/registry/apiregistration.k8s.io/apiservices/broken", msgspec.json.encode(broken))
    await expose(api, extension)
    await api.made(SERVICES, api_service(pki))
    assert (await available(api, "Passed"))["status"] == "True"
    conditions = (await api.get(f"{SERVICES}/broken")).body["status"]["conditions"]
    assert [one.get("reason") for one in conditions] == [None, "ServiceNotFound"]


async def test_a_server_that_fails_discovery_is_unavailable(api, pki, extension):
    await expose(api, extension)
    extension.discovery_status = 500
    await api.made(SERVICES, api_service(pki))

    condition = await available(api, "FailedDiscoveryCheck")

    assert "failing or missing response from https://127.0.0.1:" in condition["message"]
    assert (await api.get(FLUNDERS)).status == 503


async def test_a_slow_server_does_not_delay_the_check_of_others(api, pki, extension):
    await expose(api, extension)
    await api.made(SERVICES, api_service(pki, "slow.example.com"))
    async with asyncio.timeout(10):
        await extension.slow.wait()
    await api.made(SERVICES, api_service(pki))

    await available(api, "Passed")

    assert (await api.get(f"{SERVICES}/v1.slow.example.com")).body["status"] == {}


async def test_a_change_of_the_service_or_its_endpoints_is_noticed_at_once(api, pki, extension, monkeypatch):
    monkeypatch.setattr(aggregation, "CHECK_SECONDS", 3600.0)
    await api.made(SERVICES, api_service(pki))
    await available(api, "ServiceNotFound")
    await expose(api, extension)
    await available(api, "Passed")
    slice_ = await api.store.get(SLICE)
    await api.store.delete(SLICE, expected=slice_.revision)
    assert (await available(api, "MissingEndpoints"))["status"] == "False"
    await api.store.create(SLICE, slice_.value)
    await available(api, "Passed")
    await api.delete("/api/v1/namespaces/wardle/services/api")
    await available(api, "ServiceNotFound")


async def test_rights_are_checked_here(api, pki, extension):
    from podwire.protocols.k8sapi.server_side import Certificate

    await expose(api, extension)
    await api.made(SERVICES, api_service(pki))
    await available(api, "Passed")

    assert (await api.get(FLUNDERS, user=Certificate("nobody", ()))).status == 403
    assert not extension.requests


async def test_a_local_group_is_always_available(api):
    spec = {"group": "local.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    made = await api.made(SERVICES, {"metadata": {"name": "v1.local.example.com"}, "spec": spec})

    assert made["status"]["conditions"][0]["reason"] == "Local"


async def test_the_authorities_are_published(api, front):
    data = (await api.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")).body["data"]

    assert data["requestheader-client-ca-file"] == front.authority_pem.decode()
    assert data["requestheader-allowed-names"] == '["front-proxy-client"]'
