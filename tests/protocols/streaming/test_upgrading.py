"""Protocols that clients request with their Upgrade header."""

import pytest

from podwire.protocols.streaming import upgrading
from podwire.protocols.streaming.upgrading import NoVersion, choose

V5, V4, V3 = "v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io"
TUNNEL = "SPDY/3.1+portforward.k8s.io"


@pytest.mark.parametrize(
    ("headers", "spdy", "websocket", "tunnelled"),
    [
        ({}, False, False, ()),
        ({"upgrade": "SPDY/3.1"}, True, False, ()),
        ({"upgrade": "spdy/3.1", "sec-websocket-protocol": TUNNEL}, True, False, ()),
        ({"upgrade": "websocket"}, False, True, ()),
        ({"upgrade": "websocket", "sec-websocket-protocol": V5}, False, True, ()),
        ({"upgrade": "WebSocket", "sec-websocket-protocol": f"{V5}, {TUNNEL}"}, False, True, ("portforward.k8s.io",)),
        ({"upgrade": "h2c"}, False, False, ()),
    ],
    ids=["nothing", "SPDY", "SPDY alone", "WebSocket", "channels", "tunnel", "another"],
)
def test_wires(headers, spdy, websocket, tunnelled):
    assert upgrading.wants_spdy(headers) is spdy
    assert upgrading.wants_websocket(headers) is websocket
    assert upgrading.tunnelled(headers) == tunnelled


def test_versions_come_in_one_header_or_in_several():
    assert upgrading.versions({"x-stream-protocol-version": f"{V4}, {V3},,"}) == (V4, V3)
    assert upgrading.versions({}) == ()


def test_the_clients_order_decides():
    assert choose([V5, V3, V4], [V4, V3]) == V3
    with pytest.raises(NoVersion, match=r"client supports \[a b\], server accepts \[v4.channel.k8s.io\]"):
        choose(["a", "b"], [V4])
