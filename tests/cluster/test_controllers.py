"""The controllers beside the API server."""

import asyncio
import logging

import pytest

from podwire.cluster import controllers


async def test_a_fault_in_a_controller_is_told_and_begun_anew(monkeypatch, caplog):
    begun, third = [], asyncio.Event()

    async def faulty(_assembled):
        begun.append(1)
        if len(begun) < 3:
            raise ValueError("an object nobody thought of")
        third.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(controllers, "_run", faulty)
    monkeypatch.setattr(controllers, "RESTART", 0.0)
    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(controllers.in_process(None))
        await third.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [each.message for each in caplog.records] == ["a controller failed; all begin anew"] * 2
