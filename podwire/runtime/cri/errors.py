"""What the kernel, the disk and the image store say no with, told by gRPC's codes and with their words."""

import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from podwire.linux.errors import OutOfResources, from_oserror
from podwire.protocols import grpc_call
from podwire.protocols.grpc_status import (
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    RpcError,
)
from podwire.runtime.images import ImageError
from podwire.runtime.images.errors import AmbiguousImage, BadReference, ImageInUse, NoSuchImage, StoreFull

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

_IMAGES: dict[type[ImageError], type[RpcError]] = {
    AmbiguousImage: InvalidArgument,
    BadReference: InvalidArgument,
    ImageInUse: FailedPrecondition,
    NoSuchImage: NotFound,
    StoreFull: ResourceExhausted,
}


def as_rpc(error: ImageError | OSError) -> RpcError:
    """The error to tell. A full disk passes; everything else from the kernel is our fault, with its reason."""
    if isinstance(error, ImageError):
        return _IMAGES.get(type(error), Internal)(f"image: {error}")
    named = from_oserror(error, "use the disk")
    return ResourceExhausted(str(named)) if isinstance(named, OutOfResources) else Internal(str(named))


def translate_errors(handler: Callable[[Asked], Awaitable[Answered]]) -> Callable[[Asked], Awaitable[Answered]]:
    """A handler whose callers learn why it failed."""

    @functools.wraps(handler)
    async def told(request: Asked) -> Answered:
        try:
            return await handler(request)
        except (ImageError, OSError) as error:
            raise as_rpc(error) from error

    return told


def uncancelled(handler: Callable[[Asked], Awaitable[Answered]]) -> Callable[[Asked], Awaitable[Answered]]:
    """A handler that is done to its end, also when its caller gives up: half of it would be nobody's."""

    @functools.wraps(handler)
    async def to_its_end(request: Asked) -> Answered:
        async def work() -> Answered:
            return await handler(request)

        return await grpc_call.current().uncancelled(work())

    return to_its_end
