"""PortForward: connections to the ports of a pod, over SPDY or in the channels of a WebSocket."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from podwire.interfaces import ByteStream
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import FailedPrecondition, InvalidArgument
from podwire.protocols.k8sapi.server_side import Socket
from podwire.protocols.streaming import portforward
from podwire.protocols.streaming.channels import Violation
from podwire.protocols.streaming.upgrading import PORT_FORWARD
from podwire.runtime.limits import RuntimeLimits
from podwire.runtime.ports import ConnectPort
from podwire.runtime.sandboxes.sandbox import Sandbox
from podwire.runtime.streaming.port_connection import Connect, InputQueue, forward
from podwire.runtime.streaming.portforward_spdy import SpdyForwarder
from podwire.runtime.streaming.server import StreamHandler, StreamingServer, TargetGone
from podwire.transports.spdy_server import Frames


class PortForwardService:
    """Issues URLs. Over SPDY a client names a port with each connection; a WebSocket's ports are in the request."""

    def __init__(self, server: StreamingServer, connect_port: ConnectPort, limits: RuntimeLimits | None = None) -> None:
        self._server = server
        self._connect_port = connect_port
        self._limits = limits or RuntimeLimits()

    def url(self, sandbox: Sandbox, request: pb.PortForwardRequest) -> str:
        """Returns a URL that is valid for one client within a minute."""
        sandbox.check_ready()
        ports = _ports(request)
        connect = partial(self._connect_port, sandbox.record.network)

        def check() -> None:
            if not sandbox.ready:
                raise TargetGone("the pod has ended")

        async def over_spdy(wire: ByteStream, _version: str) -> None:
            await _while_ready(sandbox, SpdyForwarder(Frames(wire), sandbox.id, connect, self._limits).run)

        async def over_websocket(socket: Socket) -> None:
            await _while_ready(sandbox, WebSocketForwarder(socket, ports, sandbox.id, connect, self._limits).run)

        handler = StreamHandler(
            check=check,
            versions=(PORT_FORWARD,),
            over_spdy=over_spdy,
            over_websocket=over_websocket if ports else None,
        )
        return self._server.add("portforward", handler)


def _ports(request: pb.PortForwardRequest) -> tuple[int, ...]:
    if not request.port:
        return ()
    try:
        return portforward.ports_of([str(port) for port in request.port])
    except portforward.BadPorts as error:
        raise InvalidArgument(f"port: {error}") from error


async def _while_ready(sandbox: Sandbox, run: Callable[[], Awaitable[None]]) -> None:
    async def work() -> None:
        await run()

    with contextlib.suppress(FailedPrecondition):  # the pod is stopped, and its connections end with it
        await sandbox.unless_stopped(work())


class WebSocketForwarder:
    """One client of a WebSocket, with one connection to each of its ports."""

    def __init__(
        self, socket: Socket, ports: Sequence[int], pod: str, connect: Connect, limits: RuntimeLimits | None = None
    ) -> None:
        self._socket = socket
        self._ports = ports
        self._pod = pod
        self._connect = connect
        self._limits = limits or RuntimeLimits()
        self._side = portforward.ServerSide(socket.protocol, ports)
        self._queues = [InputQueue(self._limits) for _ in ports]

    async def run(self) -> None:
        """Forwards until every port has ended, or the client leaves; its connections end with it."""
        for message in self._side.opening():
            await self._socket.send(message)
        receiving = asyncio.create_task(self._receive(), name="from the client")
        forwarding = asyncio.create_task(self._forward_all(), name="to the ports")
        try:
            await asyncio.wait((receiving, forwarding), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (receiving, forwarding):
                task.cancel()
            await asyncio.gather(receiving, forwarding, return_exceptions=True)

    async def _receive(self) -> None:
        with contextlib.suppress(Violation):
            while (message := await self._socket.receive()) is not None:
                match self._side.receive(message):
                    case portforward.Bytes(index, data):
                        await self._queues[index].put(data)
                    case portforward.Ended(index):
                        await self._queues[index].put(b"")

    async def _forward_all(self) -> None:
        async with asyncio.TaskGroup() as connections:
            for index in range(len(self._ports)):
                connections.create_task(self._forward(index))

    async def _forward(self, index: int) -> None:
        """Forwards one connection; its errors end it alone. The protocol has no message for the end of one port: it
        ends with the session."""
        port, queue = self._ports[index], self._queues[index]

        async def send(data: bytes) -> None:
            for message in self._side.data(index, data):
                await self._socket.send(message)

        async def on_end() -> None:
            queue.abandon()

        try:
            await forward(await self._connect(port), queue, send, on_end, self._limits)
        except OSError as error:
            text = f"error forwarding port {port} to pod {self._pod}, uid : {error}"
            with contextlib.suppress(OSError):
                for message in self._side.problem(index, text):
                    await self._socket.send(message)
        finally:
            queue.abandon()
