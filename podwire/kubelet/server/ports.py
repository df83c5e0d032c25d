"""Interface of the kubelet's server to the runtime's streaming server."""

from collections.abc import Collection
from typing import Protocol

from podwire.protocols.k8sapi.server_side import Request, Response, Tunnel, Upgrade
from podwire.protocols.streaming.channels import Channel
from podwire.protocols.streaming.dialects import COMMAND_PROTOCOLS


class Conversations(Protocol):
    """Reaches the runtime's streaming server."""

    async def conversation(
        self,
        url: str,
        asked: Request,
        spdy: Collection[Channel] = (),
        *,
        protocols: Collection[str] = COMMAND_PROTOCOLS,
    ) -> Upgrade | Response:
        """Connect to a streaming URL over a WebSocket, or over SPDY with these channels; or the server's refusal.
        `protocols` are the subprotocols that the client may speak.

        Raises ApiError if the connection fails.
        """
        ...

    async def tunnel(self, url: str, asked: Request) -> Tunnel | Upgrade | Response:
        """Pass SPDY through to a streaming URL, for a client of SPDY or of SPDY in a WebSocket; or the refusal.

        Raises ApiError if the connection fails.
        """
        ...
