"""Both event loops serve: uvloop in the product, the stock one wherever it is missing."""

import asyncio

import uvloop


def pytest_asyncio_loop_factories():
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
