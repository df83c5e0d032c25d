"""Runs probes of containers on this node: commands through the runtime, the others through sockets."""

import asyncio
import math
from collections.abc import Sequence

from podwire.kubelet.ports import Cri
from podwire.kubelet.probes.ports import ExecResult, Headers, ProbeFailed, ProbeUnknown, Sockets
from podwire.kubelet.probes.targets import join, redirected
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri.methods import EXEC_SYNC
from podwire.protocols.grpc_status import DeadlineExceeded, ResourceExhausted, RpcError, Unimplemented
from podwire.protocols.k8sapi.client_side import Reply

OUTPUT_BYTES = 10 * 1024
"""Bytes of a command's output that are kept."""

REDIRECTS = 10

RUNTIME_SECONDS = 2.0
"""Added to the timeout of a command, for the runtime to kill it and to answer."""


class NodeProber:
    """Implements Prober."""

    def __init__(self, cri: Cri, sockets: Sockets) -> None:
        self._cri = cri
        self._sockets = sockets

    async def exec(self, container_id: str, command: Sequence[str], seconds: float | None) -> ExecResult:
        """The runtime kills a command that exceeds the timeout."""
        request = pb.ExecSyncRequest(container_id=container_id, cmd=command, timeout=math.ceil(seconds or 0))
        try:
            done = await self._cri.call(EXEC_SYNC, request, timeout=seconds + RUNTIME_SECONDS if seconds else None)
        except DeadlineExceeded as error:
            words = " ".join(command)
            raise ProbeFailed(f'command timed out: "{words}" timed out after {seconds or 0:g}s') from error
        except ResourceExhausted as error:  # the command was killed because of too much output
            raise ProbeFailed(_rpc(error)) from error
        except RpcError as error:
            raise ProbeUnknown(_rpc(error)) from error
        output = (done.stdout[:OUTPUT_BYTES] + done.stderr[:OUTPUT_BYTES])[:OUTPUT_BYTES]
        return ExecResult(done.exit_code, output.decode("utf-8", "replace"))

    async def http(self, url: str, headers: Headers, seconds: float | None) -> Reply:
        try:
            async with asyncio.timeout(seconds):
                return await self._following(url, headers)
        except TimeoutError as error:
            late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            raise ProbeFailed(f'Get "{url}": {late}') from error
        except OSError as error:
            raise ProbeFailed(f'Get "{url}": {error}') from error

    async def tcp(self, host: str, port: int, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._sockets.tcp(host, port)
        except TimeoutError as error:
            raise ProbeFailed(f"dial tcp {join(host, port)}: i/o timeout") from error
        except OSError as error:
            raise ProbeFailed(str(error)) from error

    async def grpc(self, host: str, port: int, service: str, seconds: float | None) -> int:
        late = f"timeout: health rpc did not complete within {seconds or 0:g}s"
        try:
            async with asyncio.timeout(seconds):
                return await self._sockets.grpc(host, port, service)
        except (TimeoutError, DeadlineExceeded) as error:
            raise ProbeFailed(late) from error
        except Unimplemented as error:
            missing = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"
            raise ProbeFailed(f"{missing}: {error}") from error
        except RpcError as error:
            raise ProbeFailed(f"error: health rpc probe failed: {_rpc(error)}") from error

    async def _following(self, url: str, headers: Headers) -> Reply:
        for _ in range(REDIRECTS):
            reply = await self._sockets.http(url, headers)
            onward = redirected(url, headers, reply)
            if onward is None:
                return reply
            url, headers = onward
        raise OSError(f"stopped after {REDIRECTS} redirects")


def _rpc(error: RpcError) -> str:
    return f"rpc error: code = {type(error).__name__} desc = {error}"
