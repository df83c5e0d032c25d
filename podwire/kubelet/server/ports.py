"""What the kubelet's server needs beside the pods, the runtime and the API server."""

from collections.abc import Collection
from typing import Protocol

from podwire.protocols.k8sapi.server_side import Request, Response, Upgrade
from podwire.protocols.streaming.remote_command import Channel


class Conversations(Protocol):
    """Reaches the runtime's streaming server."""

    async def conversation(self, url: str, asked: Request, spdy: Collection[Channel] = ()) -> Upgrade | Response:
        """The conversation that waits at a URL, or its refusal: over a WebSocket, or over SPDY with these channels.

        Raises ApiError when nobody is there.
        """
        ...
