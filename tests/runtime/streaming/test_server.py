"""The streaming server as a function: who comes to a URL, and over which wire."""

from dataclasses import replace

import pytest

from podwire.protocols.grpc_status import ResourceExhausted
from podwire.protocols.k8sapi.server_side import Request, Response, Tunnel, Upgrade
from podwire.protocols.streaming.channels import Streams
from podwire.runtime.limits import RuntimeLimits
from podwire.runtime.streaming.server import StreamHandler, StreamingServer, TargetGone, session_handler

SPDY = {"upgrade": "SPDY/3.1", "x-stream-protocol-version": "v5.channel.k8s.io, v4.channel.k8s.io"}
WEBSOCKET = {"upgrade": "websocket"}
LIMITS = RuntimeLimits()


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def made(clock):
    made = StreamingServer(clock)
    made.base_url = "http://127.0.0.1:1"
    return made


def exec_(check=lambda: None) -> StreamHandler:
    async def converse(_socket): ...

    return session_handler(Streams(stdout=True), check, converse)


async def ask(made, url, headers=WEBSOCKET):
    return await made.handle(Request(method="POST", path=url.removeprefix(made.base_url), headers=headers))


async def test_a_client_may_use_websocket_or_spdy(made):
    assert isinstance(await ask(made, made.add("exec", exec_())), Upgrade)
    answer = await ask(made, made.add("exec", exec_()), SPDY)
    assert isinstance(answer, Tunnel)
    assert answer.headers == (("X-Stream-Protocol-Version", "v4.channel.k8s.io"),)


async def test_an_unsupported_version_is_answered_with_the_supported_ones(made):
    answer = await ask(made, made.add("exec", exec_()), {"upgrade": "SPDY/3.1", "x-stream-protocol-version": "v9"})
    assert isinstance(answer, Response)
    assert answer.status == 403
    assert b"unable to negotiate protocol: client supports [v9], server accepts [v4.channel.k8s.io" in answer.body
    assert [value for _, value in answer.headers] == [f"v{number}.channel.k8s.io" for number in (4, 3, 2)]


@pytest.mark.parametrize("headers", [{}, {"upgrade": "h2c"}])
async def test_without_an_upgrade_nothing_is_served(made, headers):
    answer = await ask(made, made.add("exec", exec_()), headers)
    assert (answer.status, b"an upgrade is required" in answer.body) == (400, True)


async def test_a_url_is_valid_once_and_for_a_minute(made, clock):
    url, late = made.add("exec", exec_()), made.add("attach", exec_())
    assert isinstance(await ask(made, url), Upgrade)
    assert (await ask(made, url)).status == 404
    clock.now = LIMITS.stream_url + 1
    assert (await ask(made, late)).status == 404


async def test_a_url_of_an_ended_container_is_answered_409(made):
    def check():
        raise TargetGone("the container has ended")

    answer = await ask(made, made.add("exec", exec_(check)))
    assert (answer.status, answer.body) == (409, b"the container has ended\n")


def test_the_number_of_unused_urls_is_limited(clock):
    made = StreamingServer(clock, replace(LIMITS, stream_urls=2))
    made.add("exec", exec_())
    made.add("exec", exec_())
    with pytest.raises(ResourceExhausted):
        made.add("exec", exec_())
    clock.now = LIMITS.stream_url + 1
    made.add("exec", exec_())
