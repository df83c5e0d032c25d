"""A container's log for one reader: what is there, and with `follow` what comes, until the container has ended."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path

from podwire.kubelet.pods.observed import ObservedContainer
from podwire.kubelet.ports import Cri
from podwire.kubelet.server.file_watch import LEFT, Changes, Watched
from podwire.kubelet.server.log_files import LogFiles
from podwire.kubelet.server.log_lines import LogOptions, Renderer
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import NotFound, RpcError
from podwire.protocols.k8sapi.status import bad_request

STATUS_SECONDS = 10.0

DESERTED_SECONDS = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
"""When a writer closes a log, its container has ended and the runtime will know in a moment, or the log is rotated and
the new file will be there in a moment. It is looked for so often; afterwards the next change is waited for."""


class Logs:
    """Reads logs; all who follow share one watch on files."""

    def __init__(self, cri: Cri) -> None:
        self._cri = cri
        self._changes = Changes()

    def close(self) -> None:
        self._changes.close()

    async def read(self, container: ObservedContainer, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """The log as chunks; raises ApiError before the first when there is no file."""
        try:
            files = await asyncio.to_thread(LogFiles, Path(container.log_path), options.tail)
        except OSError as error:
            why = error.strerror or str(error)
            raise bad_request(f'failed to open log file "{container.log_path}": {why.lower()}') from error
        return self._chunks(files, container.id, options)

    async def _chunks(self, files: LogFiles, id_: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        renderer = Renderer(options)
        with (
            contextlib.closing(files),
            contextlib.closing(_Following(files, self._changes, id_, self._ended)) as coming,
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
        """Whether a container writes no more; a runtime that cannot say it is asked again after the next change."""
        request = pb.ContainerStatusRequest(container_id=id_)
        try:
            answer = await self._cri.call(methods.CONTAINER_STATUS, request, timeout=STATUS_SECONDS)
        except NotFound:
            return True
        except RpcError:
            return False
        return answer.status.state not in (pb.CONTAINER_RUNNING, pb.CONTAINER_CREATED)


class _Following:
    """What will be written to a log: waits for it, over rotations, to the end of the container."""

    def __init__(self, files: LogFiles, changes: Changes, id_: str, ended: Callable[[str], Awaitable[bool]]) -> None:
        self._files = files
        self._changes = changes
        self._id = id_
        self._ended = ended
        self._stack = contextlib.ExitStack()
        self._watched = Watched()
        self._complete = False
        self._pauses: Iterator[float] = iter(())
        """How long to wait before looking again, while nobody seems to write."""

    async def begin(self) -> None:
        """Watch the present file, and only then ask whether it is complete: nothing can happen unseen."""
        self._stack.close()
        self._watched = self._stack.enter_context(self._changes.of(self._files.descriptor))
        self._complete = await self._is_complete()

    async def _is_complete(self) -> bool:
        """Whether the present file will not grow: the log goes on in another one, or not at all."""
        return await asyncio.to_thread(self._files.is_replaced) or await self._ended(self._id)

    def close(self) -> None:
        self._stack.close()

    async def more(self) -> bool:
        """Wait until there may be something to read; False when nothing will ever come."""
        if self._complete:
            if not await asyncio.to_thread(self._files.advance):
                return False
            await self.begin()
            return True
        pause = next(self._pauses, None)
        mask = await self._watched.next(pause)
        if mask & LEFT:
            self._pauses = iter(DESERTED_SECONDS)
        elif mask:
            self._pauses = iter(())
        if mask & LEFT or pause is not None:
            self._complete = await self._is_complete()
        return True
