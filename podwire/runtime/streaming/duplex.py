"""Both directions of a session at the same time."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_duplex(sending: Coroutine[Any, Any, None], receiving: Coroutine[Any, Any, None]) -> bool:
    """Runs both until one ends, and cancels the other. Returns whether everything was sent: False when the client
    left first. Raises the error of sending."""
    sender, receiver = asyncio.create_task(sending), asyncio.create_task(receiving)
    try:
        await asyncio.wait((sender, receiver), return_when=asyncio.FIRST_COMPLETED)
        if sender.done():
            sender.result()
        return sender.done()
    finally:
        for task in (sender, receiver):
            task.cancel()
        await asyncio.gather(sender, receiver, return_exceptions=True)
