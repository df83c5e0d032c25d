"""A real webhook server over TLS, and configurations that name it."""

import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from podwire.cluster.webhook_client import webhook_client
from tests.apiserver.support import Api, answer_when

GROUP = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = f"{GROUP}/mutatingwebhookconfigurations", f"{GROUP}/validatingwebhookconfigurations"
Respond = Callable[[dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]]


class WebhookServer:
    """Answers reviews by path, and remembers the requests."""

    def __init__(self, ca: bytes) -> None:
        self.ca = base64.b64encode(ca).decode()
        self.port = 0
        self.responses: dict[str, Respond] = {}
        self.reviews: list[tuple[str, dict[str, Any]]] = []
        self.queries: list[str] = []
        self.peers: set[Any] = set()
        self.hosts: set[str] = set()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def called(self) -> list[str]:
        return [path for path, _ in self.reviews]

    def on(self, path: str, respond: Respond) -> None:
        self.responses[path] = respond

    async def handle(self, request: web.Request) -> web.Response:
        review = json.loads(await request.read())
        self.reviews.append((request.path, review["request"]))
        self.queries.append(request.query_string)
        self.hosts.add(request.headers["Host"])
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        respond = self.responses.get(request.path)
        if respond is None:
            return web.Response(status=404, text="no such webhook")
        response = respond(review["request"])
        answer = response if isinstance(response, dict) else await response
        if "raw" in answer:
            return web.Response(status=answer.get("code", 200), body=answer["raw"])
        kind = {"kind": review["kind"], "apiVersion": review["apiVersion"]}
        return web.json_response({**kind, "response": {"uid": review["request"]["uid"], **answer}})


@pytest.fixture
async def hook(pki, tmp_path) -> AsyncIterator[WebhookServer]:
    certificate, key = pki.issue_server("hook", names=["hook.default.svc"], ips=["127.0.0.1"])
    for name, text in (("tls.crt", certificate), ("tls.key", key)):
        (tmp_path / name).write_bytes(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    server = WebhookServer(pki.authority_pem)
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


@pytest.fixture
async def api(serve) -> AsyncIterator[Api]:
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(webhook_client())
        yield await serve(webhooks=client)


Make = Callable[..., dict[str, Any]]


@pytest.fixture
def webhook(hook) -> Make:
    """One webhook of a configuration, for config maps."""

    def make(path: str = "/", name: str = "hook.example.com", **more: Any) -> dict[str, Any]:
        rule = {
            "operations": ["CREATE", "UPDATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
        }
        return {
            "name": name,
            "clientConfig": {"url": f"{hook.url}{path}", "caBundle": hook.ca},
            "rules": [{**rule, **more.pop("rule", {})}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }

    return make


@pytest.fixture
def configure(api) -> Callable[..., Awaitable[None]]:
    """Stores a configuration and waits until it is in force."""

    async def configured(collection: str, *webhooks: dict[str, Any], name: str = "c") -> None:
        await api.made(collection, {"metadata": {"name": name}, "webhooks": list(webhooks)})
        informer = api.assembled.webhooks
        plugin = informer.mutating if collection == MUTATING else informer.validating

        async def active() -> set[str]:
            return {one.name for one in plugin.active if one.configuration == name}

        await answer_when(active, lambda names: names >= {one["name"] for one in webhooks})

    return configured


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    text = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": text}


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}
