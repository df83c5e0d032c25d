"""What the kubelet's server needs beside the pods, the runtime and the API server."""

from typing import Protocol

from podwire.protocols.k8sapi.server_side import Request, Response, Upgrade


class Conversations(Protocol):
    """Reaches the runtime's streaming server."""

    async def conversation(self, url: str, asked: Request) -> Upgrade | Response:
        """The conversation that waits at a URL, or its refusal. Raises ApiError when nobody is there."""
        ...
