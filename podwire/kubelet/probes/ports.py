"""Interfaces of the probes to the outside, and their errors.

ProbeFailed     the container did not answer as it should: the probe has failed
ProbeUnknown    the request did not reach the container: the result is unknown
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from podwire.protocols.k8sapi.client_side import Reply

Headers = Sequence[tuple[str, str]]


class ProbeFailed(Exception):
    """The message is for an event."""


class ProbeUnknown(Exception):
    """The message is the cause."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """Exit code of a command in a container, and the beginning of its output."""

    code: int
    output: str


class Prober(Protocol):
    """Runs one request against a container; `seconds` is the timeout, None for none.

    Every method may raise ProbeFailed, `exec` also ProbeUnknown.
    """

    async def exec(self, container_id: str, command: Sequence[str], seconds: float | None) -> ExecResult: ...

    async def http(self, url: str, headers: Headers, seconds: float | None) -> Reply:
        """The response to a GET. It may be a redirect: only those to the same host are followed."""
        ...

    async def tcp(self, host: str, port: int, seconds: float | None) -> None: ...

    async def grpc(self, host: str, port: int, service: str, seconds: float | None) -> int:
        """The ServingStatus of grpc.health.v1."""
        ...


class Sockets(Protocol):
    """Opens a new connection for each call. Raises OSError with a message for events; the caller sets the timeout."""

    async def http(self, url: str, headers: Headers) -> Reply:
        """GET; returns the beginning of the body. Redirects are not followed."""
        ...

    async def tcp(self, host: str, port: int) -> None:
        """Connect and close."""
        ...

    async def grpc(self, host: str, port: int, service: str) -> int:
        """Health/Check of grpc.health.v1. Raises RpcError."""
        ...
