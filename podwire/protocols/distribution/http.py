"""The HTTP client that a registry client is handed, and its errors."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from podwire.protocols.distribution.hosts import Tls


class Unreachable(Exception):
    """Nothing was sent: no connection, or the certificate was refused."""


class NotTls(Unreachable):
    """The server does not speak TLS."""


class Interrupted(Exception):
    """The connection was cut, or nothing came for too long."""


class Response(Protocol):
    """An answer whose body is read piece by piece."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names are in lower case; of several values, one."""
        ...

    @property
    def challenges(self) -> Sequence[str]:
        """All values of `WWW-Authenticate`."""
        ...

    async def read(self) -> bytes:
        """Returns the next piece of the body; empty at its end. Raises Interrupted."""
        ...

    def close(self) -> None: ...


class Http(Protocol):
    async def request(
        self, method: str, url: str, *, headers: Sequence[tuple[str, str]] = (), body: bytes = b"", tls: Tls
    ) -> Response:
        """Sends one request; redirects are not followed. Raises Unreachable, Interrupted."""
        ...


LONGEST = 300
"""Characters of a registry's own words that are shown."""
BODY = 16 << 10
"""Bytes of an error body that are read."""


class _Error(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Errors(msgspec.Struct):
    errors: list[_Error] = []
    details: str = ""


def describe_error(status: int, body: bytes) -> str:
    """Returns `404: MANIFEST_UNKNOWN: manifest unknown`, or the status alone when the body is not a registry's."""
    try:
        parsed = msgspec.json.decode(body, type=_Errors)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        parsed = _Errors()
    words = [": ".join(filter(None, (error.code, error.message))) for error in parsed.errors] or [parsed.details]
    text = "".join(letter for letter in "; ".join(filter(None, words)) if letter.isprintable())[:LONGEST]
    return f"{status}: {text}" if text else str(status)
