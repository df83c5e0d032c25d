"""Rotates the logs of running containers, so that a container cannot fill the disk by printing.

    0.log                      written by the runtime
    0.log.20261116-101500      the one before it: renamed, then ReopenContainerLog
    0.log.20261116-101455.gz   older ones, compressed with the next rotation; the oldest is removed

Sizes are looked at every ten seconds as upstream does, and every second while a log grows so fast that it would pass
its limit several times meanwhile. A compressed file keeps the time of the last write, by which readers find the files
that follow theirs (`server/log_files.py`).
"""

import asyncio
import contextlib
import gzip
import logging
import os
import shutil
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from podwire.interfaces import Clock
from podwire.kubelet.pods.observed import ObservedContainer
from podwire.kubelet.pods.runtime_cache import RuntimeCache
from podwire.kubelet.ports import Cri
from podwire.linux.errors import NoSuchPath
from podwire.linux.fs.regular_files import open_regular
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError
from podwire.tasks.uncancelled import thread_to_completion

log = logging.getLogger(__name__)

COMPRESSED, TEMPORARY = ".gz", ".tmp"
TIME = "%Y%m%d-%H%M%S"
COPIED_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    max_size: int = 10 * 1024**2
    """Bytes at which a log is rotated; negative for never."""
    max_files: int = 5
    """Files of one container, the current one included; at least 2."""
    period: float = 10.0
    """Seconds between two looks at the sizes."""
    shortest_period: float = 1.0
    """The same while a log grows fast; names of files have seconds."""
    call: float = 30.0
    """Timeout of ReopenContainerLog."""


class LogRotation:
    def __init__(self, cri: Cri, cache: RuntimeCache, clock: Clock, settings: LogSettings) -> None:
        self._cri = cri
        self._cache = cache
        self._clock = clock
        self._settings = settings
        self._sizes: dict[str, tuple[int, float]] = {}
        """By container id: the size at the last look, and its time."""

    async def run(self) -> None:
        """Rotate until cancelled."""
        if self._settings.max_size < 0:
            await asyncio.Event().wait()
        while True:
            pause = await self._look()
            await asyncio.sleep(pause)

    async def _look(self) -> float:
        """Rotate what is too large. Returns the seconds until the next look."""
        containers = [container for uid in self._cache.uids for container in self._cache.observed(uid).running]
        logs = [container for container in containers if container.log_path]
        sizes = await asyncio.to_thread(_sizes, logs) if logs else []
        pause, now = self._settings.period, self._clock.monotonic()
        known, self._sizes = self._sizes, {}
        for container, size in zip(logs, sizes, strict=True):
            before, then = known.get(container.id, (size, now - self._settings.period))
            growth = (size - before) / max(now - then, 0.001)
            if growth > 0:
                pause = min(pause, self._settings.max_size / growth)
            self._sizes[container.id] = (size, now)
            if size >= self._settings.max_size or size < 0:
                await self._rotate(container, reopen_only=size < 0)
                self._sizes[container.id] = (0, now)
                pause = min(pause, self._settings.period / 2)
        return max(pause, self._settings.shortest_period)

    async def _rotate(self, container: ObservedContainer, *, reopen_only: bool) -> None:
        """A log that was removed by somebody is only created again."""
        path = Path(container.log_path)
        try:
            rotated = None
            if not reopen_only:
                rotated = await thread_to_completion(self._make_room, path)
            try:
                request = pb.ReopenContainerLogRequest(container_id=container.id)
                await self._cri.call(methods.REOPEN_CONTAINER_LOG, request, timeout=self._settings.call)
            except RpcError:
                if rotated is not None:
                    await thread_to_completion(_undo, rotated, path)
                raise
        except (OSError, RpcError) as error:
            log.warning("cannot rotate container log", extra={"path": str(path), "error": str(error)})

    def _make_room(self, path: Path) -> Path:
        """Remove and compress older files, and rename the current one. Returns its new name."""
        older = rotated_files(path, remove_unused=True)
        excess = max(0, len(older) - max(0, self._settings.max_files - 2))
        for file in older[:excess]:
            file.unlink(missing_ok=True)
        for file in older[excess:]:
            if file.suffix != COMPRESSED:
                _compress(file)
        rotated = path.with_name(f"{path.name}.{self._time(older)}")
        path.rename(rotated)
        return rotated

    def _time(self, older: list[Path]) -> str:
        """The time for a new name: after that of all others, although the clock may have been set back."""
        now = datetime.fromtimestamp(self._clock.wall(), UTC).replace(microsecond=0)
        if older:
            last = older[-1].name.removesuffix(COMPRESSED).rpartition(".")[2]
            with contextlib.suppress(ValueError):
                now = max(now, datetime.strptime(last, TIME).replace(tzinfo=UTC) + timedelta(seconds=1))
        return now.strftime(TIME)


def _undo(rotated: Path, path: Path) -> None:
    """The runtime goes on writing to the renamed file."""
    if not path.exists():
        rotated.rename(path)


def _sizes(containers: list[ObservedContainer]) -> list[int]:
    return [_size(container.log_path) for container in containers]


def _size(path: str) -> int:
    """The size of a log; -1 if it does not exist, 0 if it is not a regular file."""
    try:
        state = os.lstat(path)
    except OSError:
        return -1
    return state.st_size if stat.S_ISREG(state.st_mode) else 0


def rotated_files(path: Path, *, remove_unused: bool = False) -> list[Path]:
    """Rotated files of a log, the oldest first. Unused are those that a killed kubelet left while it compressed."""
    files = sorted(path.parent.glob(f"{path.name}.*"), key=lambda file: file.name.removesuffix(COMPRESSED))
    names = {file.name for file in files}
    unused = {file for file in files if file.suffix == TEMPORARY or f"{file.name}{COMPRESSED}" in names}
    if remove_unused:
        for file in unused:
            file.unlink(missing_ok=True)
    return [file for file in files if file not in unused]


def remove_log(path: Path) -> None:
    """Remove a log and its rotated files. Raises OSError."""
    for file in (*path.parent.glob(f"{path.name}.*"), path):
        file.unlink(missing_ok=True)


def _compress(file: Path) -> None:
    temporary, compressed = file.with_name(file.name + TEMPORARY), file.with_name(file.name + COMPRESSED)
    try:
        descriptor = open_regular(file)
    except NoSuchPath:
        return
    with os.fdopen(descriptor, "rb") as source:
        state = os.fstat(descriptor)
        opened = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, stat.S_IMODE(state.st_mode)
        )
        try:
            with os.fdopen(opened, "wb") as target, gzip.GzipFile("", "wb", 3, target, 0) as packed:
                shutil.copyfileobj(source, packed, COPIED_BYTES)
            os.utime(temporary, ns=(state.st_atime_ns, state.st_mtime_ns))
            temporary.rename(compressed)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    file.unlink(missing_ok=True)
