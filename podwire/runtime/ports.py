"""What the runtime needs from its neighbours, in its own words."""

from dataclasses import dataclass, field
from typing import Protocol

from podwire.protocols.cri import cri_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A pod's place in the pod network: what CNI is told of it."""

    id: str
    netns: str
    """Empty when the namespace is gone already."""
    name: str
    namespace: str
    uid: str
    ports: tuple[pb.PortMapping, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)


class Network(Protocol):
    """Puts pods onto the network."""

    async def attach(self, attachment: Attachment) -> tuple[str, ...]:
        """Attach a pod; its addresses, the primary one first. Raises an RpcError that says which plugin refused."""
        ...

    async def detach(self, attachment: Attachment) -> None:
        """Give everything back; nothing happens for what was never attached."""
        ...

    async def attached(self) -> set[str]:
        """The ids for which something is remembered, so that leftovers can be given back."""
        ...

    def not_ready_reason(self) -> str:
        """Returns why pods cannot be attached now; empty when they can."""
        ...

    def check_report(self, id_: str) -> str:
        """Returns the latest CHECK result of a pod as JSON; empty when it was never checked."""
        ...


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    pid_started: int


@dataclass(frozen=True, slots=True)
class Exited:
    code: int
    finished_at: int
    known: bool = True
    """Whether somebody saw it; else the code is made up."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a command in a container said."""

    code: int
    stdout: bytes
    stderr: bytes
