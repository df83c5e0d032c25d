"""Lists page by page and informers that resync, against a scripted server."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from podwire.client import Added, ApiError, ClientError, Synced, Updated
from podwire.client.api import Api
from podwire.protocols.k8sapi.client_side.calls import Patience
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.protocols.k8sapi.server_side import Request, Response, Stream
from podwire.transports import http_client
from podwire.transports.http_server import serve


@pytest.fixture
async def script():
    """`await script(answer)` is the Api of a server that answers with `answer(request)`."""
    opened = []

    async def start(answer) -> Api:
        async def handler(request: Request):
            return answer(request)

        server = await serve(handler)
        client = http_client.opened(Access(server=f"http://127.0.0.1:{server.port}"))
        opened.append((server, client))
        return Api(await client.__aenter__(), patience=Patience(tries=1))

    yield start
    for server, client in opened:
        await client.__aexit__(None, None, None)
        await server.close(0.5)


def page(names, token: str = "") -> Response:
    items = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in names]
    meta = {"resourceVersion": "1", "continue": token}
    return Response(status=200, body=json.dumps({"metadata": meta, "items": items}).encode())


async def names(api: Api) -> list[str]:
    return [pod["metadata"]["name"] async for pod in api.list("v1", "Pod")]


async def test_the_next_page_is_on_its_way_while_one_is_used(script):
    asked = []

    def answer(request: Request) -> Response:
        token = request.query.get("continue", [""])[0]
        asked.append(token)
        return page("ab", "1") if not token else page("cd", "2") if token == "1" else page("e")

    api = await script(answer)
    found = []
    async for pod in api.list("v1", "Pod"):
        found.append(pod["metadata"]["name"])
        await asyncio.sleep(0.2)
        if found == ["a"]:
            assert asked == ["", "1"]
    assert (found, asked) == (list("abcde"), ["", "1", "2"])


@pytest.mark.parametrize(
    "body",
    [b"hello", b"[]", b'{"items": 5}', b'{"items": [5]}', b'{"items": [{}', b"\xff", b'{"metadata": {"continue": 5}}'],
)
async def test_an_answer_that_is_not_a_list_is_an_error(script, body):
    api = await script(lambda _request: Response(status=200, body=body))
    with pytest.raises(ClientError, match="/api/v1/namespaces/default/pods"):
        await names(api)


async def test_a_list_without_items_is_empty(script):
    api = await script(lambda _request: Response(status=200, body=b'{"metadata": {}, "items": null}'))
    assert await names(api) == []


async def test_a_moment_that_the_server_forgot_ends_the_list(script):
    gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}

    def answer(request: Request) -> Response:
        if "continue" in request.query:
            return Response(status=410, body=json.dumps(gone).encode())
        return page("ab", "1")

    api = await script(answer)
    with pytest.raises(ApiError, match="too old") as expired:
        await names(api)
    assert expired.value.code == 410


async def test_an_informer_resyncs_across_watches_that_end(script):
    watches = []

    async def frames(number: int) -> AsyncIterator[bytes]:
        object_ = {"metadata": {"name": f"new-{number}", "resourceVersion": str(number + 2)}}
        yield json.dumps({"type": "ADDED", "object": object_}).encode() + b"\n"
        await asyncio.sleep(0.3)

    def answer(request: Request):
        if "watch" not in request.query:
            return page("a")
        watches.append(request)
        return Stream(chunks=frames(len(watches)))

    api = await script(answer)
    seen: list = []
    async with await api.informer("v1", "Pod", resync=0.2) as informer:
        async with asyncio.timeout(30):
            async for change in informer:
                seen.append(change)
                if sum(isinstance(item, Added) for item in seen) == 4:
                    break
    assert len(watches) == 3
    assert isinstance(seen[1], Synced)
    resynced = {item.object["metadata"]["name"] for item in seen if isinstance(item, Updated)}
    assert resynced >= {"a", "new-1"}
