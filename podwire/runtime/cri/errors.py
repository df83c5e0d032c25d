"""Errors of the kernel, the disk and the image store as gRPC status codes."""

import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from podwire.linux.errors import OutOfResources, from_oserror
from podwire.protocols.grpc_status import (
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    RpcError,
    Unavailable,
)
from podwire.runtime.images import ImageError
from podwire.runtime.images.errors import AmbiguousImage, BadReference, ImageInUse, NoSuchImage, PullFailed, StoreFull

Request = TypeVar("Request")
Response = TypeVar("Response")

_IMAGES: dict[type[ImageError], type[RpcError]] = {
    AmbiguousImage: InvalidArgument,
    BadReference: InvalidArgument,
    ImageInUse: FailedPrecondition,
    NoSuchImage: NotFound,
    StoreFull: ResourceExhausted,
}


def rpc_error(error: ImageError | OSError) -> RpcError:
    """Returns the error for the caller. A full disk is temporary; other errors of the kernel are internal."""
    if isinstance(error, PullFailed):
        kind = NotFound if error.missing else PermissionDenied if error.denied else Unavailable
        return kind(f"failed to pull image: {error}")
    if isinstance(error, ImageError):
        return _IMAGES.get(type(error), Internal)(f"image: {error}")
    named = from_oserror(error, "use the disk")
    return ResourceExhausted(str(named)) if isinstance(named, OutOfResources) else Internal(str(named))


def translate_errors(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Returns a handler whose errors are gRPC statuses."""

    @functools.wraps(handler)
    async def translated(request: Request) -> Response:
        try:
            return await handler(request)
        except (ImageError, OSError) as error:
            raise rpc_error(error) from error

    return translated
