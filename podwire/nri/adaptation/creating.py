"""CreateContainer: plugins change the container one after the other, then all who validate judge what came out."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from podwire.nri.adaptation.connected_plugin import ConnectedPlugin, PluginLost
from podwire.nri.adaptation.dispatch import Dispatcher
from podwire.nri.adaptation.registrations import Registrations
from podwire.nri.adaptation.settings import ValidatorSettings
from podwire.protocols.grpc_status import PermissionDenied, RpcError, Unavailable
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import Event
from podwire.protocols.nri.merge import Merger
from podwire.protocols.nri.validation import default_verdict

log = logging.getLogger(__name__)

_VALIDATE = Event.VALIDATE_CONTAINER_ADJUSTMENT


@dataclass(frozen=True, slots=True)
class Adjusted:
    """What plugins want of a container that is being created."""

    adjust: pb.ContainerAdjustment
    plugins: tuple[str, ...] = ()
    """Those that were asked, in this order."""


class Creation:
    """Asks and judges; applies nothing."""

    def __init__(self, seats: Registrations, relay: Dispatcher, validator: ValidatorSettings) -> None:
        self._seats = seats
        self._relay = relay
        self._validator = validator

    async def ask(
        self, pod: pb.PodSandbox, container: pb.Container, required: Sequence[str]
    ) -> tuple[Merger, tuple[str, ...]]:
        """What all plugins together want, and who was asked. Raises RpcError."""
        merger = Merger(pb.CreateContainerRequest(pod=pod, container=container))

        def take(plugin: str, response: pb.CreateContainerResponse) -> None:
            refuse_evictions(plugin, response.evict)
            merger.add(plugin, response)

        asked = await self._relay.strictly(
            Event.CREATE_CONTAINER, pod, lambda: merger.request, take=take, required=required
        )
        return merger, asked

    async def judge(self, pod: pb.PodSandbox, container: pb.Container, merger: Merger) -> None:
        """The built-in validator first, then the plugins that validate, all at once. Raises RpcError.

        Closed on failure: one that does not answer has not agreed.
        """
        validators = [each for each in self._seats.peers() if _VALIDATE in each.events]
        if not validators and not self._validator.enable:
            return
        request = pb.ValidateContainerAdjustmentRequest(
            pod=pod,
            container=container,
            adjust=merger.adjust,
            update=merger.updates,
            owners=merger.owners,
            plugins=[pb.PluginInstance(name=each.id.name, index=each.id.index) for each in self._seats.peers()],
        )
        if self._validator.enable and (reason := default_verdict(self._validator, request)):
            raise PermissionDenied(f"the default validator rejected the adjustment of {container.name}: {reason}")
        verdicts = await asyncio.gather(*(self._verdict(each, request) for each in validators))
        for error in verdicts:
            if error is not None:
                raise error

    async def _verdict(self, peer: ConnectedPlugin, request: pb.ValidateContainerAdjustmentRequest) -> RpcError | None:
        try:
            response = await peer.ask(_VALIDATE, request)
        except RpcError as error:
            return error
        except PluginLost:
            return Unavailable(f"validator {peer.id} did not answer, so {request.container.name} is not created")
        if not response.reject:
            return None
        reason = response.reason or "it gives no reason"
        return PermissionDenied(f"validator {peer.id} rejected the adjustment of {request.container.name}: {reason}")


def refuse_evictions(plugin: str, evictions: Sequence[pb.ContainerEviction]) -> None:
    """NRI has words for an eviction, and no runtime does it; the plugin's author is to see that."""
    for each in evictions:
        log.error(
            "an eviction is refused: this runtime evicts no container for a plugin",
            extra={"plugin": plugin, "container": each.container_id, "reason": each.reason},
        )
