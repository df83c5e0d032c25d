"""Interfaces that the runtime is handed: the pod network, and the sockets that `transports/` implements."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from podwire.protocols.cri import cri_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A pod's interface in the pod network: what CNI needs to know of the pod."""

    id: str
    netns: str
    """Empty when the namespace is gone already."""
    name: str
    namespace: str
    uid: str
    ports: tuple[pb.PortMapping, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)


class Network(Protocol):
    """Attaches pods to the pod network."""

    async def attach(self, attachment: Attachment) -> tuple[str, ...]:
        """Returns the pod's addresses, the primary one first. Raises an RpcError that names the failing plugin."""
        ...

    async def detach(self, attachment: Attachment) -> None:
        """Releases everything; idempotent."""
        ...

    async def adopt(self, attachments: Sequence[Attachment]) -> list[str]:
        """After a start: the pods that are attached by their records. Returns the ids of which the network had lost
        its own records, which it makes anew."""
        ...

    async def attached(self) -> set[str]:
        """Returns the ids of which something may have to be released."""
        ...

    def not_ready_reason(self) -> str:
        """Returns why pods cannot be attached now; empty when they can."""
        ...

    def invalid_configurations(self) -> str:
        """Returns which network configurations cannot be used, and why; empty when all can."""
        ...

    def check_report(self, id_: str) -> str:
        """Returns the latest CHECK result of a pod as JSON; empty when it was never checked."""
        ...


class ShimConnection(Protocol):
    """A connection to a shim's socket."""

    async def send(self, data: bytes) -> None: ...

    def finish(self) -> None:
        """Ends the sending direction."""
        ...

    async def receive_line(self) -> str:
        """Returns one line, and reads not a byte more; empty when the shim is gone."""
        ...

    async def receive_exactly(self, size: int) -> bytes:
        """Returns `size` bytes; empty when the shim is gone before all have come."""
        ...

    def close(self) -> None: ...


ConnectUnix = Callable[[Path, str], Awaitable[ShimConnection]]
"""Connects to the socket of a name in a directory. Raises OSError."""


class ConsoleSocket(Protocol):
    """A socket at which the OCI runtime hands over a terminal."""

    path: str

    async def receive(self) -> int:
        """Returns a non-blocking descriptor of the terminal. Raises OSError."""
        ...

    def close(self) -> None: ...


ListenConsole = Callable[[Path], ConsoleSocket]
"""Listens in a directory. Raises OSError."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ConnectPort = Callable[[str, int], Awaitable[Streams]]
"""Connects to a port of the loopback interface in a network namespace; empty is the host's. Raises OSError."""
