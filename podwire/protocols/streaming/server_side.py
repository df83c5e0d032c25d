"""The server side of a remote command: receives input and terminal sizes, sends output and, last, the outcome."""

from collections.abc import Iterator
from dataclasses import dataclass

from podwire.protocols.streaming import channels, outcome, terminal
from podwire.protocols.streaming.channels import Channel, Streams


@dataclass(frozen=True, slots=True)
class Stdin:
    data: bytes


@dataclass(frozen=True, slots=True)
class StdinEnded:
    """Only v5 can say so; in v4 input ends with the connection."""


Event = Stdin | StdinEnded | terminal.Size


class ServerSide:
    """One exec or attach."""

    def __init__(self, protocol: str, streams: Streams) -> None:
        self._protocol = protocol
        self._streams = streams
        self._sizes = terminal.SizeReader()
        self._stdin_open = streams.stdin

    def opening(self) -> bytes:
        """To be sent first: clients wait for it before they believe that they are connected."""
        if self._streams.stdout:
            return channels.greeting(Channel.STDOUT)
        return channels.greeting(Channel.STDERR if self._streams.stderr else Channel.ERROR)

    def receive(self, message: bytes | str) -> Iterator[Event]:
        """Parses a message. Input that is not connected, or after its end, is dropped. Raises Violation."""
        match channels.decode(message, protocol=self._protocol, channels=len(Channel)):
            case channels.Data(Channel.STDIN, data) if self._stdin_open and data:
                yield Stdin(data)
            case channels.HalfClose(Channel.STDIN) if self._stdin_open:
                self._stdin_open = False
                yield StdinEnded()
            case channels.Data(Channel.RESIZE, data) if self._streams.tty:
                yield from self._sizes.feed(data)

    def stdout(self, data: bytes) -> Iterator[bytes]:
        """The messages that carry it; none when the client did not ask for it."""
        return channels.encode(Channel.STDOUT, data if self._streams.stdout else b"")

    def stderr(self, data: bytes) -> Iterator[bytes]:
        return channels.encode(Channel.STDERR, data if self._streams.stderr else b"")

    def ended(self, how: outcome.Outcome) -> bytes:
        """The last message; the connection is then closed with 1000."""
        return bytes((Channel.ERROR,)) + outcome.encode(how)
