"""Of several instances of the driver, one works at a time, and one answers."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from pathlib import Path


class InstanceLock:
    """A file that is locked while this instance works; its own calls share the lock and go side by side."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = asyncio.Lock()
        self._users = 0
        self._held = -1

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Raises OSError."""
        async with self._turn:
            if self._users == 0:
                self._held = await self._locked()
            self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                os.close(self._held)
                self._held = -1

    async def _locked(self) -> int:
        self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        opened = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting = asyncio.ensure_future(asyncio.to_thread(fcntl.flock, opened, fcntl.LOCK_EX))
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                waiting.add_done_callback(lambda _done: os.close(opened))
                raise
        except OSError:
            os.close(opened)
            raise
        return opened


class Voice:
    """Of several instances that a runtime asks, one answers: a container's changes are taken from one plugin only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = -1

    def mine(self) -> bool:
        """Whether this instance answers; from now on, if nobody did. Raises OSError."""
        if self._held < 0:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(opened)
                return False
            self._held = opened
        return True

    def give_up(self) -> None:
        """Another instance may answer."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
