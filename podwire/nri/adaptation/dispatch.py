"""Tells plugins of one event, lowest first: also those that come while it is being told.

A plugin takes its snapshot of the node and its seat in one step, and a chain ends and enters what came of it into the
table in one step. So a plugin that comes while pods come and go learns of each exactly once: it is asked by the chain,
or it has the pod in its snapshot.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from podwire.nri.adaptation.connected_plugin import ConnectedPlugin, PluginLost
from podwire.nri.adaptation.registrations import Registrations
from podwire.protocols.grpc_status import FailedPrecondition, InvalidArgument, RpcError, Unavailable
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment, Refused
from podwire.protocols.nri.events import Event

log = logging.getLogger(__name__)

Take = Callable[[str, Any], None]
"""Is handed each answer, with the plugin that gave it."""


@dataclass(slots=True)
class _Need:
    """A plugin without which a chain does not go on, and until when it is waited for."""

    wanted: str
    until: float | None = None
    met: bool = False


@dataclass(slots=True)
class Chain:
    """One event on its way through the plugins."""

    event: Event
    request: Callable[[], Message]
    """What the next plugin is asked."""
    pod: pb.PodSandbox
    take: Take | None = None
    needs: Sequence[_Need] = ()
    asked: set[ConnectedPlugin] = field(default_factory=set)
    answered: list[ConnectedPlugin] = field(default_factory=list)


class Dispatcher:
    """Runs chains."""

    def __init__(self, seats: Registrations, *, grace: float) -> None:
        self._seats = seats
        self._grace = grace
        self.started = 0.0
        """When the host began: from then on it waits for plugins that never were there."""

    async def strictly(
        self,
        event: Event,
        pod: pb.PodSandbox,
        request: Callable[[], Message],
        *,
        take: Take | None = None,
        required: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Who answered. The first error ends it: RpcError. Unavailable names a required plugin that is not there."""
        chain = Chain(event, request, pod, take, [_Need(each) for each in required])
        while True:
            for need in chain.needs:
                await self._meet(need, chain)
            peer = self._seats.next(event, chain.asked)
            if peer is None:
                return tuple(str(each.id) for each in chain.answered)
            await self._ask(peer, chain)

    async def leniently(
        self, event: Event, pod: pb.PodSandbox, request: Callable[[], Message], *, take: Take | None = None
    ) -> None:
        """An error is that one plugin's: it is logged, and the others are told all the same."""
        chain = Chain(event, request, pod, take)
        while (peer := self._seats.next(event, chain.asked)) is not None:
            try:
                await self._ask(peer, chain)
            except RpcError as error:
                log.warning("a plugin's error changes nothing", extra={"hook": event.title, "error": str(error)})

    async def _ask(self, peer: ConnectedPlugin, chain: Chain) -> None:
        chain.asked.add(peer)
        try:
            response = await peer.ask(chain.event, chain.request())
        except PluginLost:
            return
        if chain.take is not None and not _has_spoken(peer, chain):
            self._taken(peer, chain.take, response)
        chain.answered.append(peer)
        for need in chain.needs:
            need.met = need.met or peer.id.is_meant_by(need.wanted)

    def _taken(self, peer: ConnectedPlugin, take: Take, response: Any) -> None:
        try:
            take(str(peer.id), response)
        except Refused as error:
            peer.record.last_error = str(error)
            raise as_status(error) from error

    async def _meet(self, need: _Need, chain: Chain) -> None:
        """Until the plugin has answered or is here to be asked.

        One that is here and does not want this event is good enough. The time is counted from the plugin's loss, not
        from the pod: a node whose plugin stays away fails its pods at once, and not each after the whole grace. In one
        chain it is counted once, so a plugin that dies of this very pod is not waited for again and again.
        """
        clock = asyncio.get_running_loop().time
        while not need.met and not self._seats.holds(need.wanted):
            if need.until is None:
                lost = self._seats.lost_since(need.wanted)
                need.until = (self.started if lost is None else lost) + self._grace
            if (left := need.until - clock()) <= 0:
                raise self._unavailable(need.wanted, chain)
            log.info(
                "waiting for a required plugin",
                extra={"plugin": need.wanted, "hook": chain.event.title, "seconds": round(left, 1)},
            )
            await self._seats.change(left)

    def _unavailable(self, wanted: str, chain: Chain) -> Unavailable:
        lost = self._seats.lost_since(wanted)
        clock = asyncio.get_running_loop().time()
        how = "has never registered" if lost is None else f"has been gone for {clock - lost:.1f} s"
        pod = f"{chain.pod.namespace}/{chain.pod.name}"
        return Unavailable(f'{chain.event.title}: NRI plugin "{wanted}" is required for pod {pod}, and {how}')


def _has_spoken(peer: ConnectedPlugin, chain: Chain) -> bool:
    """Whether an earlier life of the same plugin was heard: it is told all the same, and counts once."""
    return any(each.is_gone and each.id == peer.id for each in chain.answered)


def as_status(error: Refused) -> RpcError:
    """What a caller of the runtime learns of an answer that cannot be taken."""
    return InvalidArgument(str(error)) if isinstance(error, BadAdjustment) else FailedPrecondition(str(error))
