"""Interfaces of the package: the kubelet that it is handed, and a pool."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from podwire.deviceplugin.config import Pool as Settings
from podwire.deviceplugin.devices import Device, Handed
from podwire.deviceplugin.host_view import View
from podwire.linux.net.link_moves import LinkEvent, NamespaceEnded
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.grpc_methods import Handler


class Served(Protocol):
    """A socket that is served."""

    async def close(self) -> None: ...


class Incarnation(NamedTuple):
    """One process of the kubelet."""

    identity: tuple[int, int]
    age: float
    """Seconds since it started. A young one reports no pods before it has read them from the API server."""


class Kubelet(Protocol):
    """The node's kubelet, by its two sockets. All raise RpcError."""

    async def register(self, request: pb.RegisterRequest) -> None: ...

    async def held(self) -> Mapping[str, frozenset[str]]:
        """Returns the devices of each resource that pods have, by the pod-resources API."""
        ...

    def incarnation(self) -> Incarnation | None:
        """Returns which process it is; None while there is none."""
        ...

    async def serve(self, path: Path, handlers: Mapping[str, Handler]) -> Served:
        """Answer a plugin's calls on a socket. Raises OSError."""
        ...


class Unusable(Exception):
    """A device that cannot be handed out; says which and why."""


class Pool(Protocol):
    """Devices of one kind. Synchronous: one worker thread at a time."""

    settings: Settings

    def learn(self, events: Sequence[LinkEvent | NamespaceEnded], *, lost: bool) -> None:
        """Takes the events of links since the last look, and whether some were lost."""
        ...

    def look(self, view: View, held: Collection[str] | None) -> None:
        """Reconciles the devices with a view; `held` is None while no kubelet has answered."""
        ...

    def asked(self) -> None:
        """The kubelet is being asked what pods have: the answer covers what was seen so far, and nothing later."""
        ...

    def confirm(self, held: Collection[str]) -> None:
        """Takes the answer to that question."""
        ...

    def devices(self) -> tuple[Device, ...]: ...

    def hand(self, ids: Sequence[str]) -> tuple[Handed, ...]:
        """Returns what containers get of devices, which are out when this returns. Raises Unusable."""
        ...

    def described(self, device: str) -> Handed | None:
        """The same, of one that somebody has already."""
        ...

    def waits(self) -> bool:
        """Whether it must be learned soon what pods have."""
        ...

    def close(self) -> None:
        """The plugin ends: remove what is of no use without it."""
        ...
