"""What kubelets hear while another instance of the driver is at work and this one cannot begin: whom they wait for.

Without it they would go on asking the other one, which may have been stopped, and tell nobody more than that time ran
out.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence

from podwire.dradriver import service
from podwire.dradriver.claims.allocations import ClaimRef
from podwire.dradriver.instances import Busy, InstanceLock
from podwire.dradriver.ports import Door
from podwire.dradriver.publish.registration import Registration
from podwire.dradriver.publish.sockets import Sockets
from podwire.dradriver.service import Health, Ready
from podwire.protocols.registration.methods import ALL as REGISTRATION

START_PATIENCE = 5.0
"""Seconds that another instance has before kubelets are told of it."""


class StandIn:
    """Implements service.Claims: nothing is done for anybody."""

    def __init__(self, lock: InstanceLock) -> None:
        self._lock = lock

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, tuple[Ready, ...] | str]:
        return dict(self._refused(claims))

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, str]:
        return self._refused(claims)

    def _refused(self, claims: Sequence[ClaimRef]) -> dict[str, str]:
        why = self._lock.holder()
        return {each.uid: why for each in claims}


@contextlib.asynccontextmanager
async def begun(lock: InstanceLock, door: Door, sockets: Sockets) -> AsyncIterator[None]:
    """With the lock. Raises OSError; Busy when the other instance has the very same sockets."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(lock.held(START_PATIENCE))
        except Busy as busy:
            async with _standing_in(lock, door, sockets, busy):
                await stack.enter_async_context(lock.held())
        yield


@contextlib.asynccontextmanager
async def _standing_in(lock: InstanceLock, door: Door, sockets: Sockets, busy: Busy) -> AsyncIterator[None]:
    health = Health("", lambda: ())
    registration = Registration(sockets.dra, lambda: None)
    async with contextlib.AsyncExitStack() as stack:
        for path, table, handlers in (
            (sockets.dra, service.TABLE, service.handlers(StandIn(lock), health)),
            (sockets.registration, REGISTRATION, registration.handlers),
        ):
            try:
                server = await door.serve(path, table, handlers)
            except OSError:
                raise busy from None
            stack.push_async_callback(server.close)
        yield
