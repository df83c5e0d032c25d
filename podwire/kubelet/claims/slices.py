"""The devices of drivers that are gone are not offered any more: their ResourceSlices are deleted, after a while.

At the start of a kubelet no driver has registered, and most do within a moment: what they offer stays.
"""

import asyncio
import logging
from collections.abc import Callable

from podwire.kubelet.ports import Api
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import ClientError, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0, 300.0
"""Until an API server that did not delete is asked again, first and at most."""


def _kind() -> Kind:
    found = BUILTIN.of_kind("resource.k8s.io/v1", "ResourceSlice")
    if found is None:
        raise LookupError("ResourceSlice")
    return found


SLICES = _kind()


class Slices:
    """`connected` tells whether a driver is there now. `run` is the parent of all that wait."""

    def __init__(self, api: Api, node: str, connected: Callable[[str], bool], grace: float) -> None:
        self._api = api
        self._node = node
        self._connected = connected
        self._grace = grace
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                self._wait("")
                await asyncio.Event().wait()
        finally:
            self._group = None

    def moved(self, driver: str) -> None:
        """It came or went."""
        if self._connected(driver):
            if (waiting := self._waiting.pop(driver, None)) is not None:
                waiting.cancel()
        elif driver not in self._waiting:
            self._wait(driver)

    def _wait(self, driver: str) -> None:
        if self._group is not None:
            name = f"devices of {driver or 'all drivers'}"
            self._waiting[driver] = self._group.create_task(self._later(driver), name=name)

    async def _later(self, driver: str) -> None:
        try:
            await asyncio.sleep(self._grace)
            await self._withdraw(driver)
        finally:
            if self._waiting.get(driver) is asyncio.current_task():
                del self._waiting[driver]

    async def _withdraw(self, driver: str) -> None:
        """Until the API server has done it, or does not let us."""
        pause, longest = RETRY_SECONDS
        while True:
            try:
                await self._delete(driver)
            except (ClientError, ApiError) as error:
                if isinstance(error, ApiError) and error.code in (403, 404):
                    log.warning("devices of drivers that are gone stay offered", extra={"why": error.message})
                    return
                log.info("devices not withdrawn yet", extra={"driver": driver, "why": str(error)})
                await asyncio.sleep(pause)
                pause = min(pause * 2, longest)
            else:
                return

    async def _delete(self, driver: str) -> None:
        """Of one driver, or of all that are not there."""
        only = f",spec.driver={driver}" if driver else ""
        found = await self._api.list(SLICES, Scope(field_selector=f"spec.nodeName={self._node}{only}"))
        for each in found.items:
            name, owner = each["metadata"]["name"], each["spec"]["driver"]
            if self._connected(owner):
                continue
            try:
                await self._api.delete(SLICES, name, uid=each["metadata"].get("uid", ""))
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
            log.info("devices withdrawn, their driver is gone", extra={"driver": owner, "slice": name})
