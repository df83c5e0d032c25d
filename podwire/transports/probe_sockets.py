"""Sockets for probes: HTTP, TCP and gRPC health, each call on a new connection.

The peer is an untrusted container: certificates are not verified, redirects not followed, proxies not used, cookies not
kept, and the body is read up to a bound. Failures are OSErrors with the texts of the stock kubelet.
"""

import asyncio
import contextlib
import functools
import os
import socket
import ssl
from collections.abc import Sequence

import aiohttp
import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from multidict import CIMultiDict
from yarl import URL

from podwire.protocols.grpc_status import from_code
from podwire.protocols.k8sapi.client_side import Reply
from podwire.transports import tls

BODY_BYTES = 10 * 1024

HEALTH_CHECK = "/grpc.health.v1.Health/Check"

_GRPC_OPTIONS = (
    ("grpc.primary_user_agent", "kube-probe/1.36"),
    ("grpc.max_receive_message_length", BODY_BYTES),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # no connection is shared with an earlier probe
)
_SKIPPED_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""Headers that aiohttp would add by itself; the caller passes its own."""


class ProbeSockets:
    """Implements the kubelet's `Sockets` interface."""

    async def http(self, url: str, headers: Sequence[tuple[str, str]]) -> Reply:
        try:
            target = URL(url, encoded=True)
        except ValueError as error:
            raise OSError(str(error)) from error
        connector = aiohttp.TCPConnector(
            force_close=True, ssl=_unverified_context() if target.scheme == "https" else True
        )
        try:
            async with aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                skip_auto_headers=_SKIPPED_HEADERS,
            ) as session:
                return await _get(session, target, headers)
        except (aiohttp.ClientError, ValueError) as error:
            raise OSError(_http_error(error, f"{target.host_subcomponent}:{target.port}")) from error

    async def tcp(self, host: str, port: int) -> None:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            _, writer = await asyncio.open_connection(host, port)
        except (OSError, UnicodeError) as error:
            raise OSError(f"dial tcp {where}: {_dial_error(error)}") from error
        writer.transport.abort()
        with contextlib.suppress(OSError):  # the peer closed first; it listens all the same
            await writer.wait_closed()

    async def grpc(self, host: str, port: int, service: str) -> int:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        async with grpc.aio.insecure_channel(where, options=_GRPC_OPTIONS) as channel:
            # HealthCheckRequest and -Response have one field each, with the number and the wire type of a wrapper's.
            check = channel.unary_unary(
                HEALTH_CHECK,
                request_serializer=StringValue.SerializeToString,
                response_deserializer=Int32Value.FromString,
            )
            try:
                answer: Int32Value = await check(StringValue(value=service))
            except grpc.aio.AioRpcError as error:
                raise from_code(error.code().value[0], error.details() or "") from error
            return answer.value


async def _get(session: aiohttp.ClientSession, target: URL, headers: Sequence[tuple[str, str]]) -> Reply:
    sent = CIMultiDict([*headers, ("Connection", "close")])
    async with session.get(target, headers=sent, allow_redirects=False) as response:
        body = b""
        while len(body) < BODY_BYTES and (chunk := await response.content.read(BODY_BYTES - len(body))):
            body += chunk
        response.close()  # the rest may be endless
        return Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, body)


@functools.cache
def _unverified_context() -> ssl.SSLContext:
    return tls.client_context(verify=False)


def _dial_error(error: OSError | UnicodeError) -> str:
    if isinstance(error, TimeoutError):
        return "i/o timeout"
    if isinstance(error, socket.gaierror | UnicodeError):  # unknown, or not a valid name
        return "lookup: no such host"
    if error.errno is not None and error.errno > 0:
        return f"connect: {os.strerror(error.errno).lower()}"
    return str(error)


def _http_error(error: Exception, where: str) -> str:
    match error:
        case aiohttp.ClientSSLError():
            return f"tls: {error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error}"
        case aiohttp.ClientConnectorError():
            return f"dial tcp {where}: {_dial_error(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return "EOF"
        case OSError():
            return f"read tcp {where}: {_dial_error(error).replace('connect:', 'read:')}"
        case aiohttp.ClientResponseError():
            return f"malformed HTTP response: {error.message}"
        case _:
            return str(error)
