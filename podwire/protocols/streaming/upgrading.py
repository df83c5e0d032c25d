"""Protocols that a client requests with its Upgrade header: SPDY, a WebSocket, or SPDY within the messages of a
WebSocket.

Beside the wire, both sides agree on a version of the conversation: over SPDY by a header of its own, over a WebSocket
by the subprotocol. kubectl takes SPDY for everything up to 1.29; from 1.31 on it tunnels port-forward in a WebSocket.
"""

from collections.abc import Mapping, Sequence

from podwire.protocols.streaming import spdy

VERSION = "X-Stream-Protocol-Version"
ACCEPTED = "X-Accepted-Stream-Protocol-Versions"
PORT_FORWARD = "portforward.k8s.io"
TUNNELLED = f"{spdy.PROTOCOL}+"
"""Before a version of the conversation, in a subprotocol: SPDY's frames come in binary messages, cut anywhere."""

Headers = Mapping[str, str]
"""Names in lower case; what came several times is joined by commas."""


class NoVersion(Exception):
    """The client speaks no version that is served; says both."""

    def __init__(self, offered: Sequence[str], served: Sequence[str]) -> None:
        client, server = (f"[{' '.join(versions)}]" for versions in (offered, served))
        super().__init__(f"unable to negotiate protocol: client supports {client}, server accepts {server}")


def wants_spdy(headers: Headers) -> bool:
    return headers.get("upgrade", "").lower() == spdy.PROTOCOL.lower()


def wants_websocket(headers: Headers) -> bool:
    return "websocket" in headers.get("upgrade", "").lower()


def tunnelled(headers: Headers) -> tuple[str, ...]:
    """The versions that a client speaks in SPDY within a WebSocket; none for other clients."""
    if not wants_websocket(headers):
        return ()
    offered = _split(headers.get("sec-websocket-protocol", ""))
    return tuple(protocol.removeprefix(TUNNELLED) for protocol in offered if protocol.startswith(TUNNELLED))


def versions(headers: Headers) -> tuple[str, ...]:
    """The versions that a client speaks over SPDY, its favourite first."""
    return _split(headers.get(VERSION.lower(), ""))


def choose(offered: Sequence[str], served: Sequence[str]) -> str:
    """The client's order decides. Raises NoVersion."""
    for version in offered:
        if version in served:
            return version
    raise NoVersion(offered, served)


def _split(values: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in values.split(",") if part.strip())
