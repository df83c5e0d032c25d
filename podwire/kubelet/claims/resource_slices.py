"""The devices of drivers that are gone are not offered any more: their ResourceSlices are deleted, after a while.

At the start of a kubelet no driver has registered, and most do within a moment: what they offer stays.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from podwire.kubelet.ports import Api
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import ClientError, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""Until an API server that did not delete is asked again."""


def _kind() -> Kind:
    found = BUILTIN.of_kind("resource.k8s.io/v1", "ResourceSlice")
    if found is None:
        raise LookupError("ResourceSlice")
    return found


SLICES = _kind()


class ResourceSlices:
    """`connected` tells whether a driver is there now."""

    def __init__(self, api: Api, node: str, connected: Callable[[str], bool], grace: float) -> None:
        self._api = api
        self._node = node
        self._connected = connected
        self._grace = grace
        self._due: dict[str, float] = {}
        """Drivers that are away, and until when they may be; the empty name is for all that have not come yet."""
        self._news = asyncio.Event()

    @property
    def awaited(self) -> set[str]:
        """Drivers that were here and may come back."""
        return {each for each in self._due if each}

    def moved(self, driver: str) -> None:
        """It came or went."""
        if self._connected(driver):
            self._due.pop(driver, None)
        else:
            self._due.setdefault(driver, asyncio.get_running_loop().time() + self._grace)
        self._news.set()

    async def run(self) -> None:
        """Work until cancelled."""
        now = asyncio.get_running_loop().time
        self._due[""] = now() + self._grace
        while True:
            self._news.clear()
            pause = min(self._due.values()) - now() if self._due else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()
            for driver in [each for each, due in self._due.items() if due <= now()]:
                if not await self._withdraw(driver):
                    self._due[driver] = now() + RETRY_SECONDS
                else:
                    self._due.pop(driver, None)

    async def _withdraw(self, driver: str) -> bool:
        """Whether that is settled."""
        try:
            await self._delete(driver)
        except (ClientError, ApiError) as error:
            if isinstance(error, ApiError) and error.code in (403, 404):
                log.warning("devices of drivers that are gone stay offered", extra={"why": error.message})
                return True
            log.info("devices not withdrawn yet", extra={"driver": driver, "why": str(error)})
            return False
        return True

    async def _delete(self, driver: str) -> None:
        """Of one driver, or of all that are not there."""
        only = f",spec.driver={driver}" if driver else ""
        found = await self._api.list(SLICES, Scope(field_selector=f"spec.nodeName={self._node}{only}"))
        for each in found.items:
            name, owner = each["metadata"]["name"], each["spec"]["driver"]
            if self._connected(owner) or (not driver and owner in self._due):
                continue
            try:
                await self._api.delete(SLICES, name, uid=each["metadata"].get("uid", ""))
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
            log.info("devices withdrawn, their driver is gone", extra={"driver": owner, "slice": name})
