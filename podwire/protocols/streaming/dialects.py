"""Subprotocols of WebSockets that differ from v4 and v5 only in the form of their messages.

    subprotocol                  messages                              outcome of a command
    v5, v4.channel.k8s.io        binary: channel, data                 a Status
    v4.base64.channel.k8s.io     text: digit of the channel, base64    a Status
    channel.k8s.io               binary: channel, data                 nothing for success, else a sentence
    base64.channel.k8s.io        text: digit of the channel, base64    nothing for success, else a sentence
    binary.k8s.io                binary: data, from the server only    -
    base64.binary.k8s.io         text: base64, from the server only    -

A handler sends and receives messages of v4 whichever of them the client speaks; `Dialect` translates. Browsers need the
text ones, and clients before Kubernetes 1.4 the ones without a version.
"""

import base64
import binascii

from podwire.protocols.streaming import outcome
from podwire.protocols.streaming.channels import PROTOCOLS, V4, Channel, Violation

V4_BASE64, V1, V1_BASE64 = "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io"
READER, READER_BASE64 = "binary.k8s.io", "base64.binary.k8s.io"

COMMAND_PROTOCOLS = (*PROTOCOLS, V4_BASE64, V1, V1_BASE64)
"""Of exec and attach."""
PORT_PROTOCOLS = (*PROTOCOLS, V4_BASE64)
"""Of port-forward."""
READER_PROTOCOLS = ("", READER, READER_BASE64)
"""Of answers that are one stream of bytes, such as a log. A client that names no subprotocol gets binary messages."""

_TEXT = frozenset({V4_BASE64, V1_BASE64})
_SENTENCES = frozenset({V1, V1_BASE64})


class Dialect:
    """The messages of one client."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._outcome = outcome.OutcomeReader() if protocol in _SENTENCES else None

    @property
    def protocol(self) -> str:
        """The subprotocol as a handler sees it."""
        return V4 if self._protocol in _TEXT | _SENTENCES else self._protocol

    def encode(self, message: bytes) -> bytes | str | None:
        """A message to the client; None when it gets none. Raises Violation for a Status that is not one."""
        if self._protocol == READER_BASE64:
            return base64.b64encode(message).decode()
        if self._outcome is not None and message[:1] == bytes((Channel.ERROR,)) and len(message) > 1:
            ended = self._outcome.feed(message[1:])
            words = outcome.sentence(ended) if ended is not None else b""
            if not words:
                return None
            message = message[:1] + words
        if self._protocol in _TEXT and message:
            return chr(ord("0") + message[0]) + base64.b64encode(message[1:]).decode()
        return message

    def decode(self, message: bytes | str) -> bytes | str:
        """A message of the client. Raises Violation."""
        if self._protocol not in _TEXT or not message:
            return message
        data = message.encode("ascii", "replace") if isinstance(message, str) else message
        try:
            return bytes(((data[0] - ord("0")) % 256,)) + base64.b64decode(data[1:], validate=True)
        except binascii.Error as error:
            raise Violation(f"not base64: {error}") from error
