"""The method of a plugin that handles an event, its arguments, and the response made of its return value."""

from typing import Any

from google.protobuf.message import Message

from podwire.nri.adjustment import Adjustment
from podwire.nri.updates import Updates
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import Event

METHODS = {event: event.name.lower() for event in Event} | {Event.VALIDATE_CONTAINER_ADJUSTMENT: "validate"}
"""The method of a plugin that handles an event."""

_UPDATING = {Event.UPDATE_CONTAINER: pb.UpdateContainerResponse, Event.STOP_CONTAINER: pb.StopContainerResponse}


def arguments(event: Event, request: Any) -> tuple[Any, ...]:
    """The fields of a request in their order; a validator gets the request itself."""
    if event is Event.VALIDATE_CONTAINER_ADJUSTMENT:
        return (request,)
    return tuple(getattr(request, field.name) for field in request.DESCRIPTOR.fields)


def response(event: Event, returned: object) -> Message:
    """The response for what a hook returned. Raises TypeError for a type that the hook cannot return."""
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
    empty: Message = event.method.response()
    return empty
