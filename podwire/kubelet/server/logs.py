"""Streams a container's log to one reader; with `follow` until the container has exited."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from podwire.kubelet.pods.observed import ObservedContainer
from podwire.kubelet.ports import Cri
from podwire.kubelet.server.file_watch import LEFT, FileEvents, FileWatches
from podwire.kubelet.server.limits import ServerLimits
from podwire.kubelet.server.log_files import LogFiles
from podwire.kubelet.server.log_lines import LogOptions, Renderer
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import NotFound, RpcError
from podwire.protocols.k8sapi.status import bad_request


class Logs:
    """Reads logs; all followers share one inotify descriptor."""

    def __init__(self, cri: Cri, limits: ServerLimits) -> None:
        self._cri = cri
        self._limits = limits
        self._watches = FileWatches()

    def close(self) -> None:
        self._watches.close()

    async def read(self, container: ObservedContainer, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """The log in chunks. Raises ApiError before the first one if the file cannot be opened."""
        try:
            files = await asyncio.to_thread(LogFiles, Path(container.log_path), options.tail)
        except OSError as error:
            cause = error.strerror or str(error)
            raise bad_request(f'failed to open log file "{container.log_path}": {cause.lower()}') from error
        return self._chunks(files, container.id, options)

    async def _chunks(self, files: LogFiles, id_: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        renderer = Renderer(options)
        with (
            contextlib.closing(files),
            contextlib.closing(_Following(files, self._watches, id_, self._ended, self._limits.log_closed)) as coming,
        ):
            if options.follow:
                await coming.begin()
            while True:
                while not renderer.full and (data := await asyncio.to_thread(files.read)):
                    if shown := renderer.feed(data):
                        yield shown
                if renderer.full or not options.follow or not await coming.more():
                    return

    async def _ended(self, id_: str) -> bool | None:
        """Whether a container has exited; None if the runtime does not answer."""
        request = pb.ContainerStatusRequest(container_id=id_)
        try:
            answer = await self._cri.call(methods.CONTAINER_STATUS, request, timeout=self._limits.status)
        except NotFound:
            return True
        except RpcError:
            return None
        return answer.status.state not in (pb.CONTAINER_RUNNING, pb.CONTAINER_CREATED)


class _Following:
    """Waits for more of a log, across rotations, until the container has exited."""

    def __init__(
        self,
        files: LogFiles,
        watches: FileWatches,
        id_: str,
        ended: Callable[[str], Awaitable[bool | None]],
        closed_pauses: Sequence[float],
    ) -> None:
        self._files = files
        self._watches = watches
        self._id = id_
        self._ended = ended
        self._closed_pauses = closed_pauses
        self._stack = contextlib.ExitStack()
        self._events = FileEvents()
        self._complete = False
        self._pauses: Iterator[float] = iter(())
        """Remaining pauses of polling after the writer closed the file."""

    async def begin(self) -> None:
        """Watch the current file before asking whether it is complete, so that no change is missed."""
        self._stack.close()
        self._events = self._stack.enter_context(self._watches.of(self._files.descriptor))
        await self._check_complete()

    async def _check_complete(self) -> None:
        """The current file does not grow any more when the log was rotated, or the container has exited."""
        complete = await asyncio.to_thread(self._files.is_replaced) or await self._ended(self._id)
        self._complete = bool(complete)
        if complete is None:
            self._pauses = itertools.chain(self._pauses, self._closed_pauses[-1:])

    def close(self) -> None:
        self._stack.close()

    async def more(self) -> bool:
        """Wait until there may be more to read; returns False at the end of the log."""
        if self._complete:
            if not await asyncio.to_thread(self._files.advance):
                return False
            await self.begin()
            return True
        pause = next(self._pauses, None)
        mask = await self._events.next(pause)
        if mask & LEFT:
            self._pauses = iter(self._closed_pauses)
        elif mask:
            self._pauses = iter(())
        if mask & LEFT or pause is not None:
            await self._check_complete()
        return True
