"""Several things at the same time."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(works: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """What they give, in their order. The first that fails fails for all; the others are given up."""
    todo = list(works)
    if len(todo) == 1:
        return [await todo[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in todo]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [each.result() for each in tasks]
