"""PortForward: a client's way to the ports of a pod, over SPDY or in the channels of a WebSocket."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from podwire.interfaces import ByteStream
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import FailedPrecondition, InvalidArgument
from podwire.protocols.k8sapi.server_side import Socket
from podwire.protocols.streaming import portforward
from podwire.protocols.streaming.channels import Violation
from podwire.protocols.streaming.upgrading import PORT_FORWARD
from podwire.runtime.sandboxes.sandbox import Sandbox
from podwire.runtime.streaming.port_connection import InputQueue, Reach, Streams, carry, connected
from podwire.runtime.streaming.portforward_spdy import SpdyForwarder
from podwire.runtime.streaming.server import StreamHandler, StreamingServer, TargetGone
from podwire.transports.spdy_server import Frames


class PortForwardService:
    """Offers them. Over SPDY a client names ports as it opens connections; in channels it has named them before."""

    def __init__(self, offers: StreamingServer) -> None:
        self._offers = offers

    def offer(self, sandbox: Sandbox, request: pb.PortForwardRequest) -> str:
        """A URL that is good for one client within a minute."""
        sandbox.check_ready()
        ports = _ports(request)

        def check() -> None:
            if not sandbox.ready:
                raise TargetGone("the pod has ended")

        async def reach(port: int) -> Streams:
            return await connected(sandbox.record.network, port)

        async def over_spdy(wire: ByteStream, _version: str) -> None:
            await _while_ready(sandbox, SpdyForwarder(Frames(wire), sandbox.id, reach).run)

        async def over_websocket(socket: Socket) -> None:
            await _while_ready(sandbox, WebSocketForwarder(socket, ports, sandbox.id, reach).run)

        offer = StreamHandler(
            check=check,
            versions=(PORT_FORWARD,),
            over_spdy=over_spdy,
            over_websocket=over_websocket if ports else None,
        )
        return self._offers.add("portforward", offer)


def _ports(request: pb.PortForwardRequest) -> tuple[int, ...]:
    if not request.port:
        return ()
    try:
        return portforward.ports_of([str(each) for each in request.port])
    except portforward.BadPorts as error:
        raise InvalidArgument(f"port: {error}") from error


async def _while_ready(sandbox: Sandbox, forward: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await forward()

    with contextlib.suppress(FailedPrecondition):  # the pod is stopped, and its connections with it
        await sandbox.unless_stopped(run())


class WebSocketForwarder:
    """One client of a WebSocket, with one connection to each of its ports."""

    def __init__(self, socket: Socket, ports: Sequence[int], pod: str, reach: Reach) -> None:
        self._socket = socket
        self._ports = ports
        self._pod = pod
        self._reach = reach
        self._side = portforward.ServerSide(socket.protocol, ports)
        self._inflows = [InputQueue() for _ in ports]

    async def run(self) -> None:
        """Until every port has ended, or the client goes; its connections go with it."""
        for message in self._side.opening():
            await self._socket.send(message)
        listening = asyncio.create_task(self._listen(), name="from the client")
        forwarding = asyncio.create_task(self._forward(), name="to the ports")
        try:
            await asyncio.wait((listening, forwarding), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (listening, forwarding):
                each.cancel()
            await asyncio.gather(listening, forwarding, return_exceptions=True)

    async def _listen(self) -> None:
        with contextlib.suppress(Violation):
            while (message := await self._socket.receive()) is not None:
                match self._side.receive(message):
                    case portforward.Bytes(index, data):
                        await self._inflows[index].put(data)
                    case portforward.Ended(index):
                        await self._inflows[index].put(b"")

    async def _forward(self) -> None:
        async with asyncio.TaskGroup() as connections:
            for index in range(len(self._ports)):
                connections.create_task(self._connection(index))

    async def _connection(self, index: int) -> None:
        """What goes wrong ends this one alone. No word for a port's end is there: it ends with the conversation."""
        port, inflow = self._ports[index], self._inflows[index]

        async def send(data: bytes) -> None:
            for message in self._side.data(index, data):
                await self._socket.send(message)

        async def ended() -> None:
            inflow.give_up()

        try:
            await carry(await self._reach(port), inflow, send, ended)
        except OSError as error:
            text = f"error forwarding port {port} to pod {self._pod}, uid : {error}"
            with contextlib.suppress(OSError):
                for message in self._side.problem(index, text):
                    await self._socket.send(message)
        finally:
            inflow.give_up()
