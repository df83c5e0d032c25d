"""The actions of a scripted plugin."""

from dataclasses import dataclass

from google.protobuf.message import Message

from podwire.protocols.grpc_status import RpcError
from podwire.protocols.nri import nri_pb2 as pb


@dataclass(frozen=True, slots=True)
class Answer:
    """Answers correctly; without a message, with one that changes nothing."""

    message: Message | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    error: RpcError


@dataclass(frozen=True, slots=True)
class Silent:
    """Never answers, and goes on reading."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Closes the connection; `half` only its own direction, and goes on reading."""

    half: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """Ends the process by a code, or by a signal when that is None."""

    code: int | None


@dataclass(frozen=True, slots=True)
class Garble:
    """Sends these bytes in place of an answer, as they are."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Answers in time, on the right stream, with a payload that is not a message."""


@dataclass(frozen=True, slots=True)
class Oversize:
    """Answers with a frame that holds so many bytes."""

    size: int


@dataclass(frozen=True, slots=True)
class OnStream:
    """Answers on a stream without a request."""

    stream: int


@dataclass(frozen=True, slots=True)
class Twice:
    """Answers, and answers again."""


@dataclass(frozen=True, slots=True)
class InPieces:
    """Answers in pieces of the mux that hold so many bytes each."""

    size: int


@dataclass(frozen=True, slots=True)
class StopReading:
    """Reads nothing for so many seconds, then answers."""

    seconds: float


@dataclass(frozen=True, slots=True)
class RefuseSplit:
    """Answers a batch of Synchronize like a plugin that does not support batches."""


Action = (
    Answer
    | Fail
    | Silent
    | Disconnect
    | Leave
    | Garble
    | Undecodable
    | Oversize
    | OnStream
    | Twice
    | InPieces
    | StopReading
    | RefuseSplit
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule for one call: whether it matches, and what happens then."""

    action: Action
    name: str
    """The action's key in the script."""
    delay: float = 0.0
    times: int | None = None
    """For so many calls; None is for all."""
    pod: str = ""
    container: str = ""
    update_before: tuple[pb.ContainerUpdate, ...] = ()
    """Updates that it requests before it answers."""
    update_after: tuple[pb.ContainerUpdate, ...] = ()

    def matches(self, pod: str, container: str) -> bool:
        return self.pod in ("", pod) and self.container in ("", container)


GOOD = Rule(Answer(), "answer")
