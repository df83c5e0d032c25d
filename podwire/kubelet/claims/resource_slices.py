"""Deletes the ResourceSlices of drivers that are gone, after a grace period.

When a kubelet starts, no driver has registered yet and most do soon, so all of them get the grace period.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from podwire.kubelet.claims.settings import ClaimSettings
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError

log = logging.getLogger(__name__)


def _kind() -> Kind:
    kind = BUILTIN.of_kind("resource.k8s.io/v1", "ResourceSlice")
    if kind is None:
        raise LookupError("ResourceSlice")
    return kind


SLICES = _kind()


class ResourceSlices:
    """`connected` returns whether a driver is connected now."""

    def __init__(self, api: Client, node: str, connected: Callable[[str], bool], settings: ClaimSettings) -> None:
        self._api = api
        self._node = node
        self._connected = connected
        self._settings = settings
        self._due: dict[str, float] = {}
        """By disconnected driver: the end of its grace period. The empty name stands for all others."""
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> set[str]:
        """Drivers that were connected and are in their grace period."""
        return {driver for driver in self._due if driver}

    def connection_changed(self, driver: str) -> None:
        if self._connected(driver):
            self._due.pop(driver, None)
        else:
            self._due.setdefault(driver, asyncio.get_running_loop().time() + self._settings.slices)
        self._changed.set()

    async def run(self) -> None:
        """Work until cancelled."""
        now = asyncio.get_running_loop().time
        self._due[""] = now() + self._settings.slices
        while True:
            self._changed.clear()
            pause = min(self._due.values()) - now() if self._due else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            for driver in [driver for driver, due in self._due.items() if due <= now()]:
                if await self._try_delete(driver):
                    self._due.pop(driver, None)
                else:
                    self._due[driver] = now() + self._settings.slices_retry

    async def _try_delete(self, driver: str) -> bool:
        """Returns whether no retry is needed."""
        try:
            await self._delete(driver)
        except (ClientError, ApiError) as error:
            if isinstance(error, ApiError) and error.code in (403, 404):
                log.warning("API server refuses to delete ResourceSlices", extra={"error": error.message})
                return True
            log.info("cannot delete ResourceSlices yet", extra={"driver": driver, "error": str(error)})
            return False
        return True

    async def _delete(self, driver: str) -> None:
        """Delete the slices of one driver, or of all that are not connected."""
        only = f",spec.driver={driver}" if driver else ""
        slices = await self._api.list(SLICES, Scope(field_selector=f"spec.nodeName={self._node}{only}"))
        for slice_ in slices.items:
            name, owner = slice_["metadata"]["name"], slice_["spec"]["driver"]
            if self._connected(owner) or (not driver and owner in self._due):
                continue
            try:
                await self._api.delete(SLICES, name, uid=slice_["metadata"].get("uid", ""))
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
            log.info("deleted ResourceSlice of driver that is gone", extra={"driver": owner, "slice": name})
