"""Streams a container's log to one reader; with `follow` until the container has exited."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path

from podwire.kubelet.pods.observed import ObservedContainer
from podwire.kubelet.ports import Cri
from podwire.kubelet.server.file_watch import LEFT, FileEvents, FileWatches
from podwire.kubelet.server.log_files import LogFiles
from podwire.kubelet.server.log_lines import LogOptions, Renderer
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import NotFound, RpcError
from podwire.protocols.k8sapi.status import bad_request

STATUS_SECONDS = 10.0

CLOSED_PAUSES = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Pauses of polling after a writer closed the log: its container has exited and the runtime will report it in a moment,
or the log is being rotated and the new file will exist in a moment. Afterwards the next event is awaited."""


class Logs:
    """Reads logs; all followers share one inotify descriptor."""

    def __init__(self, cri: Cri) -> None:
        self._cri = cri
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
            contextlib.closing(_Following(files, self._watches, id_, self._ended)) as coming,
        ):
            if options.follow:
                await coming.begin()
            while True:
                while not renderer.full and (data := await asyncio.to_thread(files.read)):
                    if shown := renderer.feed(data):
                        yield shown
                if renderer.full or not options.follow or not await coming.more():
                    return

    async def _ended(self, id_: str) -> bool:
        """Whether a container has exited; if the runtime fails to answer, it is asked again after the next event."""
        request = pb.ContainerStatusRequest(container_id=id_)
        try:
            answer = await self._cri.call(methods.CONTAINER_STATUS, request, timeout=STATUS_SECONDS)
        except NotFound:
            return True
        except RpcError:
            return False
        return answer.status.state not in (pb.CONTAINER_RUNNING, pb.CONTAINER_CREATED)


class _Following:
    """Waits for more of a log, across rotations, until the container has exited."""

    def __init__(
        self, files: LogFiles, watches: FileWatches, id_: str, ended: Callable[[str], Awaitable[bool]]
    ) -> None:
        self._files = files
        self._watches = watches
        self._id = id_
        self._ended = ended
        self._stack = contextlib.ExitStack()
        self._events = FileEvents()
        self._complete = False
        self._pauses: Iterator[float] = iter(())
        """Remaining pauses of polling after the writer closed the file."""

    async def begin(self) -> None:
        """Watch the current file before asking whether it is complete, so that no change is missed."""
        self._stack.close()
        self._events = self._stack.enter_context(self._watches.of(self._files.descriptor))
        self._complete = await self._is_complete()

    async def _is_complete(self) -> bool:
        """Whether the current file will not grow any more: the log was rotated, or the container has exited."""
        return await asyncio.to_thread(self._files.is_replaced) or await self._ended(self._id)

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
            self._pauses = iter(CLOSED_PAUSES)
        elif mask:
            self._pauses = iter(())
        if mask & LEFT or pause is not None:
            self._complete = await self._is_complete()
        return True
