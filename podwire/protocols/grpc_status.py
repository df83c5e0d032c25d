"""Errors of a gRPC call by status code; handlers raise them, the server sends them, the client raises them again.

RpcError
  Cancelled 1            the caller gave up
  Unknown 2              a peer that did not say more
  InvalidArgument 3      the request can never work
  DeadlineExceeded 4     not done in time; it may still have happened
  NotFound 5             what the request names is not there
  AlreadyExists 6
  PermissionDenied 7
  ResourceExhausted 8    too large, too many
  FailedPrecondition 9   not in the state that it must be in
  Aborted 10             met another call on the same thing; may be tried again
  OutOfRange 11
  Unimplemented 12       the peer does not do that, ever
  Internal 13            a fault of the program
  Unavailable 14         nobody there, or not now; may be tried again
  DataLoss 15
  Unauthenticated 16
"""

from typing import ClassVar

MAX_DETAILS = 4096
"""Bytes that an error's sentence may take as a header on the wire. Clients refuse headers of 8 KiB in all, and then
nobody learns anything."""


class RpcError(Exception):
    """A call that failed, with a sentence for people. Only its subclasses are raised."""

    code: ClassVar[int] = 2

    @property
    def name(self) -> str:
        """The code's name as specifications write it: NOT_FOUND."""
        return _NAMES[self.code]


class Cancelled(RpcError):
    code = 1


class Unknown(RpcError):
    code = 2


class InvalidArgument(RpcError):
    code = 3


class DeadlineExceeded(RpcError):
    code = 4


class NotFound(RpcError):
    code = 5


class AlreadyExists(RpcError):
    code = 6


class PermissionDenied(RpcError):
    code = 7


class ResourceExhausted(RpcError):
    code = 8


class FailedPrecondition(RpcError):
    code = 9


class Aborted(RpcError):
    code = 10


class OutOfRange(RpcError):
    code = 11


class Unimplemented(RpcError):
    code = 12


class Internal(RpcError):
    code = 13


class Unavailable(RpcError):
    code = 14


class DataLoss(RpcError):
    code = 15


class Unauthenticated(RpcError):
    code = 16


_BY_CODE: dict[int, type[RpcError]] = {error_class.code: error_class for error_class in RpcError.__subclasses__()}

OK = "OK"
_NAMES = (
    OK,
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)


def from_code(code: int, details: str) -> RpcError:
    """The error that a peer's answer means; codes that gRPC does not define are Unknown."""
    return _BY_CODE.get(code, Unknown)(details)


def from_exception(error: Exception, method: str) -> RpcError:
    """Converts an exception for the client: an RpcError as it is, anything else to Internal without its text."""
    if isinstance(error, RpcError):
        return error
    return Internal(f"{method} failed for a reason that it did not expect; podwire's log tells more")


def details(error: RpcError) -> str:
    """The error's sentence as it may travel: valid text, cut where a header would become too large."""
    left = MAX_DETAILS
    data = str(error).encode("utf-8", "backslashreplace")
    for at, byte in enumerate(data):
        left -= 1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3  # others are sent as %XX
        if left < 0:
            return data[:at].decode("utf-8", "ignore") + " […]"
    return data.decode()
