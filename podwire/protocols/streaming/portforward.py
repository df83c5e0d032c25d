"""Port-forward in channels: two for each port, for data and for what went wrong.

Port number i has the channels 2i and 2i+1. The server's first message on each is the port in two bytes, the lower one
first; after it come the bytes of one connection, and on the other channel at most a sentence.
(kubectl speaks SPDY instead, within a WebSocket or without; the Python client speaks this.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from podwire.protocols.streaming import channels
from podwire.protocols.streaming.channels import Violation

MAX_PORTS = 127
"""As many as there are pairs of channels below the one that means half-closing."""

MAX_ERROR = 64 * 1024


class BadPorts(ValueError):
    """The ports that a client asks for cannot be read; says which."""


def ports_of(values: Sequence[str]) -> tuple[int, ...]:
    """The ports of a query: `ports=80,443&ports=8080`. Raises BadPorts."""
    texts = [part for value in values for part in value.split(",")]
    if not 0 < len(texts) <= MAX_PORTS:
        raise BadPorts(f"between 1 and {MAX_PORTS} ports must be asked for")
    for text in texts:
        if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 65536):
            raise BadPorts(f"{text!r} is not a port between 1 and 65535")
    return tuple(int(text) for text in texts)


@dataclass(frozen=True, slots=True)
class Bytes:
    """Of one connection; `index` counts the ports as they were asked for."""

    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more comes; only v5 can say so."""

    index: int


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of this port, or a part of its text."""

    index: int
    text: str


class ServerSide:
    """The server side: it connects to the ports."""

    def __init__(self, protocol: str, ports: Sequence[int]) -> None:
        self._protocol = protocol
        self._ports = ports

    def opening(self) -> Iterator[bytes]:
        """To be sent first."""
        for channel in range(2 * len(self._ports)):
            yield bytes((channel,)) + self._ports[channel // 2].to_bytes(2, "little")

    def receive(self, message: bytes | str) -> Bytes | Ended | None:
        """Parses a message of the client to a port. Raises Violation."""
        match channels.decode(message, protocol=self._protocol, channels=2 * len(self._ports)):
            case channels.Data(channel, data) if channel % 2 == 0 and data:
                return Bytes(channel // 2, data)
            case channels.HalfClose(channel) if channel % 2 == 0:
                return Ended(channel // 2)
            case _:
                return None

    def data(self, index: int, data: bytes) -> Iterator[bytes]:
        return channels.encode(2 * index, data)

    def problem(self, index: int, text: str) -> Iterator[bytes]:
        return channels.encode(2 * index + 1, text.encode("utf-8", "backslashreplace")[:MAX_ERROR])


class ClientSide:
    """The client side."""

    def __init__(self, protocol: str, ports: Sequence[int]) -> None:
        self._protocol = protocol
        self._ports = ports
        self._heads = [b""] * (2 * len(ports))

    def receive(self, message: bytes | str) -> Bytes | Ended | Problem | None:
        """Parses a message from a port; None for the one that opens a channel. Raises Violation."""
        match channels.decode(message, protocol=self._protocol, channels=len(self._heads)):
            case channels.Data(channel, data):
                return self._after_head(channel, data)
            case channels.HalfClose(channel) if channel % 2 == 0:
                return Ended(channel // 2)
            case _:
                return None

    def _after_head(self, channel: int, data: bytes) -> Bytes | Problem | None:
        missing = 2 - len(self._heads[channel])
        if missing:
            self._heads[channel] += data[:missing]
            data = data[missing:]
            port = self._ports[channel // 2]
            if len(self._heads[channel]) == 2 and int.from_bytes(self._heads[channel], "little") != port:
                raise Violation(f"channel {channel} is not for port {port}")
        if not data:
            return None
        return Problem(channel // 2, data.decode("utf-8", "replace")) if channel % 2 else Bytes(channel // 2, data)

    def data(self, index: int, data: bytes) -> Iterator[bytes]:
        return channels.encode(2 * index, data)

    def ended(self, index: int) -> bytes | None:
        """None where the protocol cannot say it."""
        return channels.half_close(2 * index) if self._protocol == channels.V5 else None
