"""The client side of a remote command: sends input and terminal sizes, receives output and, last, the outcome."""

from collections.abc import Iterator
from dataclasses import dataclass

from podwire.protocols.streaming import channels, outcome, terminal
from podwire.protocols.streaming.channels import Channel


@dataclass(frozen=True, slots=True)
class Stdout:
    data: bytes


@dataclass(frozen=True, slots=True)
class Stderr:
    data: bytes


Event = Stdout | Stderr | outcome.Exited | outcome.Failed


class ClientSide:
    """One exec or attach. A connection that closes before an outcome came leaves the end unknown."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._outcome = outcome.OutcomeReader()

    def receive(self, message: bytes | str) -> Event | None:
        """Parses a message; None when there is nothing to do. Raises Violation."""
        if isinstance(message, str) or not message:
            raise channels.Violation("a server sends binary messages with a channel")
        match channels.decode(message, protocol=self._protocol, channels=len(Channel)):
            case channels.Data(Channel.STDOUT, data) if data:
                return Stdout(data)
            case channels.Data(Channel.STDERR, data) if data:
                return Stderr(data)
            case channels.Data(Channel.ERROR, data):
                return self._outcome.feed(data)
            case _:
                return None

    def stdin(self, data: bytes) -> Iterator[bytes]:
        return channels.encode(Channel.STDIN, data)

    def stdin_ended(self) -> bytes | None:
        """None where the protocol cannot say it: a v4 server learns it when the connection closes."""
        return channels.half_close(Channel.STDIN) if self._protocol == channels.V5 else None

    def resize(self, size: terminal.Size) -> bytes:
        return bytes((Channel.RESIZE,)) + terminal.encode(size)
