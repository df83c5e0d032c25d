"""One call: sent, repeated where that is safe, its refusal turned into an ApiError."""

import asyncio
import gc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from podwire.protocols.k8sapi.client_side.http import (
    Http,
    Incoming,
    Interrupted,
    Query,
    Reply,
    TooSlow,
    Unreachable,
)
from podwire.protocols.k8sapi.status import CODES, ApiError, Reason

JSON = "application/json"

POSTPONED = (429, 503)
"""With Retry-After: the server did nothing yet and names the time to ask again."""

LONGEST_RETRY_AFTER = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a call may take in all, and how often it is tried; seconds."""

    deadline: float = 30.0
    tries: int = 5
    first_wait: float = 0.1


class Calls:
    def __init__(self, http: Http, patience: Patience) -> None:
        self._http = http
        self._patience = patience

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        repeat: bool = True,
    ) -> Reply:
        """The answer to a request that succeeded. Without `repeat` a postponed one is a refusal like others."""
        headers = {"accept": JSON, **(headers or {})}
        try:
            async with asyncio.timeout(self._patience.deadline):
                reply = await self._repeated(method, path, query, headers, body, repeat=repeat)
        except TimeoutError as error:
            raise TooSlow(f"{method} {path}: no answer within {self._patience.deadline} s") from error
        if reply.status >= 400:
            raise refusal(reply.status, reply.headers, reply.body)
        return reply

    async def json(self, method: str, path: str, **options: Any) -> Any:
        """Raises Interrupted for a body that is not JSON: the outcome of the request is unknown."""
        reply = await self.send(method, path, **options)
        try:
            return decode(reply.body)
        except msgspec.DecodeError as error:
            raise Interrupted(f"{method} {path}: the answer is not JSON: {error}") from error

    async def open(self, path: str, *, query: Query, headers: Mapping[str, str] | None = None) -> Incoming:
        """A streamed answer to a GET that succeeded."""
        try:
            async with asyncio.timeout(self._patience.deadline):
                incoming = await self._http.stream(
                    "GET", path, query=query, headers={"accept": JSON, **(headers or {})}
                )
        except TimeoutError as error:
            raise TooSlow(f"GET {path}: no answer within {self._patience.deadline} s") from error
        if incoming.status < 400:
            return incoming
        try:
            raise refusal(incoming.status, incoming.headers, await _rest(incoming))
        finally:
            incoming.close()

    async def _repeated(
        self, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes, *, repeat: bool
    ) -> Reply:
        wait = self._patience.first_wait
        for left in range(self._patience.tries - 1, -1, -1):
            try:
                reply = await self._http.request(method, path, query=query, headers=headers, body=body)
            except (Unreachable, Interrupted):
                if method != "GET" or not left:
                    raise
            else:
                postponed = retry_after(reply.status, reply.headers) if repeat and left else None
                if postponed is None:
                    return reply
                wait = postponed
            await asyncio.sleep(wait)
            wait = max(wait, self._patience.first_wait) * 2
        raise AssertionError("the last try returns or raises")


def decode(body: bytes) -> Any:
    """Returns the value of a JSON text. Raises msgspec.DecodeError.

    A list of 5,000 pods is 400,000 objects: the garbage collector, which would search those made so far for cycles
    again and again, takes four times as long as the decoder. There are none, and no other thread runs meanwhile.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return msgspec.json.decode(body)
    finally:
        if collects:
            gc.enable()


def retry_after(status: int, headers: Mapping[str, str]) -> float | None:
    """Seconds to wait before the same request is welcome; None when it is answered for good."""
    retry_after = headers.get("retry-after", "")
    return min(float(retry_after), LONGEST_RETRY_AFTER) if status in POSTPONED and retry_after.isdecimal() else None


_ONLY_REASON = {code: reason for reason, code in CODES.items() if list(CODES.values()).count(code) == 1}
"""Reasons of codes without a Status, where the code is unambiguous: a bare 404 is NotFound too."""


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Converts an unsuccessful answer, whether or not it is a Status."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        document = None
    if isinstance(document, dict) and document.get("kind") == "Status":
        error = ApiError.from_status(document, code=status)
    else:
        text = body[:500].decode("utf-8", "replace").strip()
        error = ApiError(_ONLY_REASON.get(status, Reason.UNKNOWN), text or f"HTTP {status}", code=status)
    if "retry-after" in headers:
        error.headers = (("Retry-After", headers["retry-after"]),)
    return error


async def _rest(incoming: Incoming) -> bytes:
    parts = []
    try:
        while part := await incoming.read():
            parts.append(part)
    except Interrupted:
        pass  # the code alone says enough
    return b"".join(parts)
