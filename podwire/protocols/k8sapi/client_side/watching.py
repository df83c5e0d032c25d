"""One watch request: its frames as they come, until the server ends it."""

from collections import deque
from contextlib import ExitStack
from typing import Self

from podwire.protocols.k8sapi.client_side.http import Incoming
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import ERROR, Frame, Frames, Object, read_frame


class Watching:
    """`async for frame in watching`. Raises Interrupted when the connection breaks, BadFrame on garbage.

    Hangs up when it fails or is cancelled; a caller that stops earlier calls `close`.
    """

    def __init__(self, incoming: Incoming, kind: Kind | None = None) -> None:
        """`kind` is what objects are that do not say so themselves."""
        self._incoming = incoming
        self._kind = kind
        self._frames = Frames()
        self._ready: deque[bytes] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        with ExitStack() as undo:
            undo.callback(self.close)
            while not self._ready:
                chunk = await self._incoming.read()
                if not chunk:
                    raise StopAsyncIteration
                self._ready.extend(self._frames.feed(chunk))
            frame = read_frame(self._ready.popleft())
            undo.pop_all()
        if self._kind is not None and frame.type != ERROR:
            named(frame.object, self._kind)
        return frame

    def close(self) -> None:
        self._incoming.close()


def named(object_: Object, kind: Kind) -> Object:
    """Members of a list do not say what they are, and bare metadata says only that."""
    object_["apiVersion"], object_["kind"] = kind.api_version, kind.kind
    return object_
