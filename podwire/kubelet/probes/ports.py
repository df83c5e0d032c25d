"""What probing needs of the outside.

Failures
├── Unanswered    the container did not answer as it should have: what was asked has failed
└── Unasked       the question never reached it: says nothing about the container
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from podwire.protocols.k8sapi.client_side import Reply

Headers = Sequence[tuple[str, str]]


class ProbeFailed(Exception):
    """The sentence is one that people read in an event."""


class ProbeUnknown(Exception):
    """The sentence tells what was in the way."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command in a container ended, and the beginning of what it said."""

    code: int
    output: str


class Prober(Protocol):
    """Asks a container one question; it may take so many seconds, None for as long as it takes.

    Every method may raise Unanswered, `exec` also Unasked.
    """

    async def exec(self, container_id: str, command: Sequence[str], seconds: float | None) -> ExecResult: ...

    async def http(self, url: str, headers: Headers, seconds: float | None) -> Reply:
        """The answer to a GET. It may be a redirect: only those to the same host were followed."""
        ...

    async def tcp(self, host: str, port: int, seconds: float | None) -> None: ...

    async def grpc(self, host: str, port: int, service: str, seconds: float | None) -> int:
        """The ServingStatus of grpc.health.v1."""
        ...


class Sockets(Protocol):
    """One fresh connection for each call. No answer is an OSError in words for people; the caller keeps the time."""

    async def http(self, url: str, headers: Headers) -> Reply:
        """GET; the beginning of the body is enough. Redirects are answers like others."""
        ...

    async def tcp(self, host: str, port: int) -> None:
        """Connect and hang up."""
        ...

    async def grpc(self, host: str, port: int, service: str) -> int:
        """Health/Check of grpc.health.v1. A refusal is an RpcError."""
        ...
