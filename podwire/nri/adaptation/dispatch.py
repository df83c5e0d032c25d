"""Sends one event to all plugins that are subscribed to it, in the order of their indices.

**Late joiners: a plugin that registers while pods come and go learns of each pod exactly once.** Two steps do not yield
to the event loop, and so cannot interleave:

| step                                | what happens in it                                                             |
|-------------------------------------|--------------------------------------------------------------------------------|
| R: a plugin registers (Synchronize) | it is added to the registrations, and the inventory is copied for its snapshot |
| E: the last plugin has answered     | no subscribed plugin is left that was not called, and the inventory is changed |

R before E: the loop below finds the new plugin among the registrations, and calls it for the pod; the snapshot was
taken before the pod entered the inventory. E before R: the pod is in the snapshot, and the loop has ended. Either way
once. The call of a plugin that is still being synchronized waits until that is over, so that it gets events in order. A
removed pod leaves the inventory in the same way.

**Required plugins fail closed.** RunPodSandbox and CreateContainer of a pod that needs a plugin do not succeed before
that plugin has answered this very event, or is registered and not subscribed to it:

| the required plugin                                      | the request                                              |
|----------------------------------------------------------|----------------------------------------------------------|
| is registered                                            | calls it in order with the others                        |
| is being synchronized                                    | waits for the end of that, as for any plugin             |
| was lost, or never registered since the start, < grace   | waits for it (it may be restarting), then calls it       |
| was lost, or never registered since the start, >= grace  | fails at once with Unavailable, which names the plugin   |
| is lost during the call                                  | waits for the rest of the grace, then calls its new life |
| answers with an error                                    | fails with that error                                    |

The grace counts from the loss of the plugin and not from the pod: a node whose plugin stays away fails pods at once
instead of each after the whole grace. Within one event it counts once, so that a plugin which dies of this very pod is
not waited for again and again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from podwire.nri.adaptation.connected_plugin import ConnectedPlugin, PluginLost
from podwire.nri.adaptation.registrations import Registrations
from podwire.protocols.grpc_status import FailedPrecondition, InvalidArgument, RpcError, Unavailable
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment, Refused
from podwire.protocols.nri.events import Event

log = logging.getLogger(__name__)

OnResponse = Callable[[str, Any], None]
"""Gets each response with the name of its plugin; raises Refused for one that cannot be merged."""


@dataclass(slots=True)
class _Requirement:
    """A plugin without which an event does not go on."""

    name: str
    deadline: float | None = None
    answered: bool = False


class Dispatcher:
    def __init__(self, registrations: Registrations, *, grace: float) -> None:
        self._registrations = registrations
        self._grace = grace
        self.started = 0.0
        """The time at which the adaptation started: plugins that never registered are waited for from then on."""

    async def call_all(
        self,
        event: Event,
        pod: pb.PodSandbox,
        request: Callable[[], Message],
        *,
        on_response: OnResponse | None = None,
        required: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Returns the plugins that answered. `request` is evaluated for each, as earlier answers may change it.

        Raises the first error, RpcError; Unavailable names a required plugin that is missing.
        """
        requirements = [_Requirement(name) for name in required]
        called: set[ConnectedPlugin] = set()
        answered: list[ConnectedPlugin] = []
        while True:
            for requirement in requirements:
                await self._wait_for(requirement, event, pod)
            plugin = self._registrations.next(event, called)
            if plugin is None:
                return tuple(str(plugin.id) for plugin in answered)
            called.add(plugin)
            try:
                response = await plugin.call(event, request())
            except PluginLost:
                continue
            _accept(plugin, response, on_response, answered)
            for requirement in requirements:
                requirement.answered |= plugin.id.is_meant_by(requirement.name)

    async def notify_all(
        self,
        event: Event,
        pod: pb.PodSandbox,
        request: Callable[[], Message],
        *,
        on_response: OnResponse | None = None,
    ) -> None:
        """Logs the error of a plugin, and calls the others all the same."""
        called: set[ConnectedPlugin] = set()
        answered: list[ConnectedPlugin] = []
        while (plugin := self._registrations.next(event, called)) is not None:
            called.add(plugin)
            try:
                _accept(plugin, await plugin.call(event, request()), on_response, answered)
            except PluginLost:
                continue
            except RpcError as error:
                facts = {"hook": event.title, "pod": f"{pod.namespace}/{pod.name}", "error": str(error)}
                log.warning("ignored error of NRI plugin", extra=facts)

    async def _wait_for(self, requirement: _Requirement, event: Event, pod: pb.PodSandbox) -> None:
        """Returns when the plugin has answered or is registered. Raises Unavailable after the grace."""
        clock = asyncio.get_running_loop().time
        while not requirement.answered and not self._registrations.has(requirement.name):
            lost = self._registrations.lost_since(requirement.name)
            if requirement.deadline is None:
                requirement.deadline = (self.started if lost is None else lost) + self._grace
            if (remaining := requirement.deadline - clock()) <= 0:
                cause = "has never registered" if lost is None else f"has been gone for {clock() - lost:.1f} s"
                raise Unavailable(
                    f'{event.title}: NRI plugin "{requirement.name}" is required for pod {pod.namespace}/{pod.name}, '
                    f"and {cause}"
                )
            log.info(
                "waiting for required NRI plugin",
                extra={"plugin": requirement.name, "hook": event.title, "seconds": round(remaining, 1)},
            )
            await self._registrations.wait_for_change(remaining)


def _accept(
    plugin: ConnectedPlugin, response: Any, on_response: OnResponse | None, answered: list[ConnectedPlugin]
) -> None:
    """Merges a response. A restarted plugin is called again for the event, but its answer counts once.

    Raises RpcError for a response that cannot be merged.
    """
    is_repeated = any(earlier.is_gone and earlier.id == plugin.id for earlier in answered)
    if on_response is not None and not is_repeated:
        try:
            on_response(str(plugin.id), response)
        except Refused as error:
            plugin.record.last_error = str(error)
            invalid = isinstance(error, BadAdjustment)
            raise (InvalidArgument if invalid else FailedPrecondition)(str(error)) from error
    answered.append(plugin)
