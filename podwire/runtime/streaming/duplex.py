"""Both directions of a conversation at the same time."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def carried(speak: Coroutine[Any, Any, None], listen: Coroutine[Any, Any, None]) -> bool:
    """Speak and listen until one of them ends; whether all was said, not when the client went first.

    Raises what went wrong with speaking.
    """
    speaking, listening = asyncio.create_task(speak), asyncio.create_task(listen)
    try:
        await asyncio.wait((speaking, listening), return_when=asyncio.FIRST_COMPLETED)
        if speaking.done():
            speaking.result()
        return speaking.done()
    finally:
        for each in (speaking, listening):
            each.cancel()
        await asyncio.gather(speaking, listening, return_exceptions=True)
