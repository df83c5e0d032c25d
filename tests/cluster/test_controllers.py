"""The controllers beside the API server."""

import asyncio
import logging

import pytest

from podwire.cluster.apiserver_controllers import run_in_process


async def test_a_failed_controller_is_logged_and_restarted(caplog):
    begun, third = [], asyncio.Event()

    async def faulty(_assembled, _names, _election):
        begun.append(1)
        if len(begun) < 3:
            raise ValueError("an object nobody thought of")
        third.set()
        await asyncio.Event().wait()

    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(run_in_process(None, run=faulty, restart_seconds=0.0))
        await third.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [record.message for record in caplog.records] == ["controllers failed and are restarted"] * 2
