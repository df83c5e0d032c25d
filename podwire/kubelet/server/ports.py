"""What the kubelet's server needs beside the pods, the runtime and the API server."""

from collections.abc import Collection
from typing import Protocol

from podwire.protocols.k8sapi.server_side import Request, Response, Tunnel, Upgrade
from podwire.protocols.streaming.remote_command import Channel


class Conversations(Protocol):
    """Reaches the runtime's streaming server."""

    async def conversation(self, url: str, asked: Request, spdy: Collection[Channel] = ()) -> Upgrade | Response:
        """The conversation that waits at a URL, or its refusal: over a WebSocket, or over SPDY with these channels.

        Raises ApiError when nobody is there.
        """
        ...

    async def tunnel(self, url: str, asked: Request) -> Tunnel | Upgrade | Response:
        """SPDY as it is spoken at a URL, or a refusal: to a client of SPDY, or of SPDY within a WebSocket.

        Raises ApiError when nobody is there.
        """
        ...
