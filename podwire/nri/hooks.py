"""How an event becomes a call of a plugin's method, and what the method returns an answer."""

import inspect
from typing import Any

from google.protobuf.message import Message

from podwire.nri.adjustment import Adjustment
from podwire.nri.updates import Updates
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import Event

METHODS = {each: each.name.lower() for each in Event} | {Event.VALIDATE_CONTAINER_ADJUSTMENT: "validate"}
"""The method of a plugin that handles an event."""

_UPDATING = {Event.UPDATE_CONTAINER: pb.UpdateContainerResponse, Event.STOP_CONTAINER: pb.StopContainerResponse}


async def call(plugin: object, event: Event, request: Any) -> Message:
    """Hand an event to a plugin's method. Raises whatever that raises."""
    method = METHODS[event]
    returned = getattr(plugin, method)(*arguments(event, request))
    if not inspect.isawaitable(returned):
        raise TypeError(f"{method} is no `async def`")
    return answer(event, await returned)


def arguments(event: Event, request: Any) -> tuple[Any, ...]:
    """The parts of a request, in the order of its fields; whoever validates wants it whole."""
    if event is Event.VALIDATE_CONTAINER_ADJUSTMENT:
        return (request,)
    return tuple(getattr(request, field.name) for field in request.DESCRIPTOR.fields)


def answer(event: Event, returned: object) -> Message:
    """What a hook returned, as it travels. Raises TypeError for what that hook cannot return."""
    match event, returned:
        case _, None:
            pass
        case Event.CREATE_CONTAINER, Adjustment():
            return pb.CreateContainerResponse(adjust=returned.message, update=returned.others)
        case ((Event.UPDATE_CONTAINER | Event.STOP_CONTAINER), Updates()):
            updated: Message = _UPDATING[event](update=returned)
            return updated
        case Event.VALIDATE_CONTAINER_ADJUSTMENT, str():
            return pb.ValidateContainerAdjustmentResponse(reject=bool(returned), reason=returned)
        case _:
            raise TypeError(f"{METHODS[event]} returned {type(returned).__name__}, which it cannot")
    response: Message = event.method.response()
    return response
