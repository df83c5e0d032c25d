"""Access to the page: every request needs the token, our Host, and no foreign Origin."""

import asyncio
import contextlib

import aiohttp
import pytest
import yarl

from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.protocols.k8sapi.server_side import Request
from podwire.web.access import Gate, Refused
from podwire.web.event_hub import QUEUE, EventHub, TooMany
from podwire.web.server import Options, serving
from tests.eventually import eventually_async
from tests.web.conftest import site_below

GATE = Gate(token="t0ken", port=8000)
COOKIE = {"host": "127.0.0.1:8000", "cookie": "a=b; podwire-ui-8000=t0ken"}


@pytest.mark.parametrize(
    ("path", "query", "headers", "status"),
    [
        pytest.param("/", {"token": ["t0ken"]}, {"host": "127.0.0.1:8000"}, 200, id="the link"),
        pytest.param(
            "/",
            {"token": ["t0ken"]},
            {"host": "localhost:8000", "sec-fetch-site": "cross-site"},
            200,
            id="the link in a mail",
        ),
        pytest.param("/", {"token": ["wrong"]}, {"host": "127.0.0.1:8000"}, 401, id="a wrong token"),
        pytest.param("/", {}, {"host": "127.0.0.1:8000"}, 401, id="no token"),
        pytest.param(
            "/api/about",
            {"token": ["t0ken"]},
            {"host": "127.0.0.1:8000"},
            401,
            id="the token in a link that is not the page",
        ),
        pytest.param("/api/about", {}, COOKIE, 200, id="the cookie"),
        pytest.param("/api/about", {}, {"host": "[::1]:8000", "authorization": "Bearer t0ken"}, 200, id="the header"),
        pytest.param(
            "/api/about", {}, COOKIE | {"cookie": "podwire-ui-8001=t0ken"}, 401, id="the cookie of another port"
        ),
        pytest.param("/api/about", {}, COOKIE | {"cookie": "\x00;=;;"}, 401, id="a cookie that cannot be read"),
        pytest.param(
            "/api/about", {}, COOKIE | {"host": "evil.example:8000"}, 421, id="a name that resolves to the loopback"
        ),
        pytest.param("/api/about", {}, COOKIE | {"host": ""}, 421, id="no host"),
        pytest.param("/api/about", {}, COOKIE | {"origin": "http://evil.example"}, 403, id="a foreign origin"),
        pytest.param("/api/about", {}, COOKIE | {"origin": "null"}, 403, id="an opaque origin"),
        pytest.param("/api/about", {}, COOKIE | {"origin": "https://127.0.0.1:8000"}, 403, id="another scheme"),
        pytest.param("/api/about", {}, COOKIE | {"origin": "http://127.0.0.1:8000"}, 200, id="our origin"),
        pytest.param("/api/about", {}, COOKIE | {"sec-fetch-site": "cross-site"}, 403, id="a foreign site"),
    ],
)
def test_the_gate(path, query, headers, status):
    request = Request(method="GET", path=path, query=query, headers=headers)
    if status == 200:
        assert GATE.check(request) is (path == "/")
    else:
        with pytest.raises(Refused) as refused:
            GATE.check(request)
        assert refused.value.status == status
        assert "t0ken" not in str(refused.value)


async def test_every_answer_has_a_strict_policy_and_only_the_link_sets_the_cookie(site):
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{site.origin}/api/about") as answer:
            assert answer.status == 401
            assert "unsafe" not in answer.headers["Content-Security-Policy"]
            assert "Set-Cookie" not in answer.headers
        async with session.get(site.link) as answer:
            assert answer.status == 200
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
            assert {"HttpOnly", "SameSite=Strict"} <= set(answer.headers["Set-Cookie"].split("; "))
            assert "<script>" not in await answer.text(), "no inline script"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/page/app.js", 200),
        ("/page/../access.py", 404),
        ("/page/%2e%2e%2faccess.py", 404),
        ("/page/nothing.js", 404),
        ("/api/starts/00", 404),
        ("/api/starts/x%00y/call?id=1", 404),
        ("/api/flows/nothing", 404),
        ("/api/flows/pod", 200),
        ("/api/compare?a=1&b=2", 404),
        ("/api/starts/00/download?format=exe", 404),
        ("/api/nothing", 404),
        ("/api/actions/retry?pod=default/web", 405),
    ],
)
async def test_bad_paths_get_a_clear_error(site, path, status):
    token = site.link.rpartition("=")[2]
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session,
        session.get(yarl.URL(site.origin + path, encoded=True)) as answer,
    ):
        assert answer.status == status
        if status != 200:
            assert "error" in await answer.json()


@pytest.mark.parametrize("allowed", [False, True])
async def test_actions_are_refused_unless_allowed_and_need_the_page_itself(tmp_path, allowed):
    async with site_below(tmp_path, allow_actions=allowed) as site:
        await site.pod("web")
        token = site.link.rpartition("=")[2]
        url = f"{site.origin}/api/actions/retry?pod=default/web"
        ours = {"Origin": site.origin, "X-Podwire-Action": "retry"}
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
            for headers in ({}, {"Origin": site.origin}, {"X-Podwire-Action": "retry"}):
                async with session.post(url, headers=headers) as answer:
                    assert answer.status == 403
            async with session.post(url, headers=ours) as answer:
                assert answer.status == (200 if allowed else 403)
        pod = await site.client.get(site.client.kind_of({"apiVersion": "v1", "kind": "Pod"}), "web", "default")
        assert bool(pod["metadata"].get("annotations")) is allowed


async def test_a_browser_that_stops_reading_is_disconnected_and_nobody_waits_for_it(site):
    token = site.link.rpartition("=")[2]
    host, port = site.origin.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(f"GET /api/events HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    assert b"200" in await reader.readline()
    writer.transport.pause_reading()
    message = "x" * 500_000

    def flood() -> bool:
        site.hub.publish("change", message)
        return site.hub.clients == 0

    await eventually_async(flood)
    writer.transport.abort()


async def test_a_hub_has_a_bounded_queue_for_each_client_and_so_many_clients():
    hub = EventHub(most=1)
    stream = hub.connect(lambda: b"first")
    with pytest.raises(TooMany):
        hub.connect(lambda: b"")
    begun = asyncio.Event()

    async def write() -> None:
        """Writes the first message, and then waits for a browser that does not read."""
        async with contextlib.aclosing(stream):
            assert b"first" in await anext(stream)
            begun.set()
            await asyncio.Event().wait()

    writing = asyncio.create_task(write())
    await begun.wait()
    for number in range(QUEUE):
        hub.publish("change", number)
    assert hub.clients == 1
    hub.publish("change", "one too many")
    assert hub.clients == 0
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert not hub.watched.is_set()


async def test_a_port_that_is_in_use_is_an_error_of_the_port(site, tmp_path):
    port = int(site.origin.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        async with serving(Options(access=Access(server=site.origin), traces=tmp_path, port=port)):
            pass
