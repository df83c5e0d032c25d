"""A DHCP client: sends and receives what `protocols/dhcp` decides. Stateless; runs any number of exchanges.

Raw frames are used before an interface has its address, and where the address must not be visible yet. The hardware
address need not be the link's: a lease can be acquired on a parent link for an interface that does not exist yet.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Address
from itertools import count
from math import inf
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.packets import ARP, IPV4, DatagramSocket, Frame, FrameSocket, index_of
from podwire.protocols.dhcp import asking as ask
from podwire.protocols.dhcp import messages, packets
from podwire.protocols.dhcp.asking import DEFAULT_OPTIONS, Asking, Client, SentOptions, Stage
from podwire.protocols.dhcp.leases import Lease
from podwire.protocols.dhcp.messages import CLIENT_PORT, EVERYBODY, NOWHERE, SERVER_PORT, Message
from podwire.protocols.dhcp.options import Malformed

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_MAX_QUEUED = 256
"""Frames that wait to be read; of a flood the rest is dropped, as the kernel would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """In seconds."""

    acquire: float = 10.0
    """For a whole exchange; the caller retries."""
    answer: float = 10.0
    """For the answer to one renewal."""
    probe: float = 0.2
    """For an ARP reply from another host that has the address. RFC 5227 waits longer, but a pod waits for this."""
    after_conflict: float = 10.0
    """Before the next attempt when another host had the address (RFC 2131, section 3.1.5)."""


class NoLease(Exception):
    """No lease was granted; a retry may succeed."""


class Withdrawn(NoLease):
    """A server withdrew the address (DHCPNAK)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The link to send on, and the client's identity."""

    ifindex: int
    mac: str
    client_id: bytes
    hostname: str = ""
    netns: str | None = None
    """None: the caller's own namespace."""
    sent: SentOptions = DEFAULT_OPTIONS

    @property
    def client(self) -> Client:
        mac = bytes.fromhex(self.mac.replace(":", ""))
        return Client(mac=mac, client_id=self.client_id, hostname=self.hostname, sent=self.sent)


class _Socket(Protocol[T_co]):
    def fileno(self) -> int: ...

    def read(self) -> Sequence[T_co]: ...

    def close(self) -> None: ...


class _FrameQueue(Generic[T]):
    """Queues what a socket receives: `with _FrameQueue(socket) as frames: await frames.next()`; closes the socket."""

    def __init__(self, socket: _Socket[T]) -> None:
        self._socket = socket
        self._queue: asyncio.Queue[T | linux.LinuxError] = asyncio.Queue(_MAX_QUEUED)

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()

    async def next(self) -> T:
        """Returns the next message. Raises LinuxError when the link is gone or down."""
        item = await self._queue.get()
        if isinstance(item, linux.LinuxError):
            raise item
        return item

    def _read(self) -> None:
        try:
            for message in self._socket.read():
                self._put(message)
        except linux.LinuxError as error:
            self._put(error)

    def _put(self, item: T | linux.LinuxError) -> None:
        if not self._queue.full():
            self._queue.put_nowait(item)


class DhcpClient:
    def __init__(self, timing: Timing | None = None, chance: random.Random | None = None) -> None:
        self._timing = timing or Timing()
        self._chance = chance or random.Random()

    async def acquire(
        self,
        ifindex: int,
        mac: str,
        *,
        client_id: bytes,
        hostname: str = "",
        netns: str | None = None,
        sent: SentOptions = DEFAULT_OPTIONS,
        remembered: IPv4Address | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the reason must tell how far it came
    ) -> Lease:
        """A lease on a link that is up; of the remembered address, if a server lets the client have it. NoLease."""
        endpoint = Endpoint(ifindex=ifindex, mac=mac, client_id=client_id, hostname=hostname, netns=netns, sent=sent)
        limit = self._timing.acquire if timeout is None else timeout
        exchange = _Exchange(endpoint, replace(self._timing, acquire=limit), self._chance, remembered)
        try:
            async with asyncio.timeout(limit):
                return await exchange.run()
        except TimeoutError:
            raise NoLease(f"DHCP: {exchange.progress}, after {limit:g} s") from None
        except linux.Unreachable as error:
            raise NoLease("DHCP: the link is down") from error
        except linux.LinuxError as error:
            raise NoLease(f"DHCP: {error}") from error

    async def confirm(self, endpoint: Endpoint, address: IPv4Address, within: float = inf) -> Lease:
        """This address and no other, from a link that does not have it: Withdrawn when a server says no, NoLease."""

        def heard(asking: Asking, frame: Frame) -> Lease | str | None:
            message, via = _message(frame)
            found = ask.heard(asking, message, via, 0) if message else None
            return found.refusal if isinstance(found, Asking) else found

        with _frames(endpoint) as (socket, frames):
            client = _client(socket, endpoint)
            begun = ask.begin(client, self._xid(), address)
            said = _frame(client, ask.spoken(begun, 0))
            return await self._exchange(within, frames, lambda: socket.send(said), lambda frame: heard(begun, frame))

    async def renew(self, lease: Lease, endpoint: Endpoint, link: str, within: float = inf) -> Lease:
        """More time from the lease's own server, on the link that has the address. Withdrawn, NoLease."""
        client, xid = endpoint.client, self._xid()
        message = messages.encode(ask.prolonging(client, lease, xid))
        with _frames(endpoint) as (_, frames):
            speaker = DatagramSocket(link, str(lease.address.ip), CLIENT_PORT, netns=endpoint.netns)
            try:
                to = (str(lease.server), SERVER_PORT)
                interpret = partial(_prolonged, client, lease, xid)
                return await self._exchange(within, frames, lambda: speaker.send(message, to), interpret)
            finally:
                speaker.close()

    async def rebind(self, lease: Lease, endpoint: Endpoint, within: float = inf) -> Lease:
        """More time from any server. Withdrawn, NoLease."""
        client, xid = endpoint.client, self._xid()
        with _frames(endpoint) as (socket, frames):
            said = _frame(client, ask.prolonging(client, lease, xid), source=lease.address.ip)
            return await self._exchange(
                within, frames, lambda: socket.send(said), partial(_prolonged, client, lease, xid)
            )

    def release(self, lease: Lease, endpoint: Endpoint) -> None:
        """Give it back. Nobody answers, so nobody waits. A link that is down is up for that moment."""
        client = endpoint.client
        message = ask.releasing(client, lease, self._xid())
        said = _frame(client, message, source=lease.address.ip, target=lease.server, to=lease.via)
        try:
            _send(endpoint, said)
        except linux.Unreachable:
            with KernelNetwork(endpoint.netns) as network:
                network.links.change(endpoint.ifindex, up=True)
                try:
                    _send(endpoint, said)
                finally:
                    network.links.change(endpoint.ifindex, up=False)

    async def _exchange(
        self,
        within: float,
        frames: _FrameQueue[Frame],
        say: Callable[[], None],
        interpret: Callable[[Frame], Lease | str | None],
    ) -> Lease:
        """Sends until a relevant frame comes. A link that just came up may drop the first frames."""
        limit = min(within, self._timing.answer)
        try:
            async with asyncio.timeout(limit):
                for tries in count():
                    say()
                    found = await _first(frames, interpret, ask.patience(tries, self._chance.random()))
                    if found is not None:
                        break
        except TimeoutError:
            raise NoLease(f"DHCP: no server answered within {limit:g} s") from None
        if isinstance(found, Lease):
            return found
        raise Withdrawn(f"DHCP: the server withdrew the address: {found}")

    def _xid(self) -> int:
        return self._chance.getrandbits(32)


class _Exchange:
    """One conversation, from nothing to a lease."""

    def __init__(
        self, endpoint: Endpoint, timing: Timing, chance: random.Random, remembered: IPv4Address | None
    ) -> None:
        self._endpoint, self._timing, self._chance = endpoint, timing, chance
        self._asking = ask.begin(endpoint.client, self._xid(), remembered)
        self._conflict = ""

    @property
    def progress(self) -> str:
        """How far it came, for people."""
        asking = self._asking
        if self._conflict:
            return self._conflict
        if asking.refusal:
            return f"the server refused what it had offered ({asking.refusal}), and there was nothing better"
        if asking.stage is Stage.REQUESTING:
            return f"{asking.server} offered {asking.wanted} and did not confirm it"
        return "no server answered"

    async def run(self) -> Lease:
        begun = asyncio.get_running_loop().time()
        with _frames(self._endpoint) as (socket, frames):
            client = _client(socket, self._endpoint)
            self._asking = replace(self._asking, client=client)
            while True:
                await asyncio.sleep(ask.pause(self._asking))
                elapsed = asyncio.get_running_loop().time() - begun
                socket.send(_frame(client, ask.spoken(self._asking, elapsed)))
                found = await self._answer(frames)
                if isinstance(found, Asking):
                    self._asking = found
                elif not await self._is_taken(found):
                    return found
                else:
                    socket.send(_frame(client, ask.declining(client, found, self._xid())))
                    await self._rest(begun)
                    self._asking = ask.begin(client, self._xid())

    async def _rest(self, begun: float) -> None:
        """Waits after a conflict; without time for that the exchange fails, and the caller retries later."""
        left = begun + self._timing.acquire - asyncio.get_running_loop().time()
        if left < self._timing.after_conflict:
            raise NoLease(f"DHCP: {self._conflict}")
        await asyncio.sleep(self._timing.after_conflict)

    async def _answer(self, frames: _FrameQueue[Frame]) -> Asking | Lease:
        wait = ask.patience(self._asking.tries, self._chance.random())
        found: Asking | Lease | None = await _first(frames, self._heard, wait)
        return found or ask.unanswered(self._asking, self._xid())

    def _heard(self, frame: Frame) -> Asking | Lease | None:
        message, via = _message(frame)
        return ask.heard(self._asking, message, via, self._xid()) if message else None

    async def _is_taken(self, lease: Lease) -> bool:
        if not self._timing.probe:
            return False
        mac, address = self._asking.client.mac, lease.address.ip
        socket = FrameSocket(self._endpoint.ifindex, ARP, netns=self._endpoint.netns)
        with _FrameQueue(socket) as frames:
            socket.send(packets.probe(mac, address))
            found = await _first(frames, lambda frame: _taken(frame, mac, address), self._timing.probe)
        if found is not None:
            self._conflict = f"{address} was leased, but {found.hex(':')} has it"
        return found is not None

    def _xid(self) -> int:
        return self._chance.getrandbits(32)


def endpoint_of(
    link: str,
    *,
    mac: str,
    client_id: bytes,
    hostname: str = "",
    netns: str | None = None,
    sent: SentOptions = DEFAULT_OPTIONS,
) -> Endpoint:
    """By the link's name. NoSuchLink, NoSuchNamespace."""
    ifindex = index_of(link, netns)
    return Endpoint(ifindex=ifindex, mac=mac, client_id=client_id, hostname=hostname, netns=netns, sent=sent)


@contextmanager
def _frames(endpoint: Endpoint) -> Iterator[tuple[FrameSocket, _FrameQueue[Frame]]]:
    """The socket of a endpoint, and what comes to it for a client's port."""
    socket = FrameSocket(endpoint.ifindex, IPV4, udp_port=CLIENT_PORT, netns=endpoint.netns)
    with _FrameQueue(socket) as frames:
        yield socket, frames


def _send(endpoint: Endpoint, frame: bytes) -> None:
    """From a socket of its own: one that met a link that is down remembers that."""
    socket = FrameSocket(endpoint.ifindex, IPV4, netns=endpoint.netns)
    try:
        socket.send(frame)
    finally:
        socket.close()


def _client(socket: FrameSocket, endpoint: Endpoint) -> Client:
    """One with another hardware address than the link's cannot hear what is sent to it, unless everything is heard."""
    client = endpoint.client
    if socket.mac == client.mac:
        return client
    socket.set_promiscuous()
    return replace(client, broadcast=True)


def _frame(
    client: Client,
    message: Message,
    *,
    source: IPv4Address = NOWHERE,
    target: IPv4Address = EVERYBODY,
    to: bytes = b"",
) -> bytes:
    data = messages.encode(message)
    to = to or packets.ETHERNET_BROADCAST
    return packets.encode(packets.Datagram(source, CLIENT_PORT, target, SERVER_PORT, data, client.mac, to))


def _message(frame: Frame) -> tuple[Message | None, bytes]:
    try:
        datagram = packets.decode(frame.data, checksummed=frame.checksummed)
        return messages.decode(datagram.data), datagram.source_mac
    except Malformed:
        return None, b""


def _prolonged(client: Client, lease: Lease, xid: int, frame: Frame) -> Lease | str | None:
    message, via = _message(frame)
    found = ask.prolonged(client, lease, xid, message) if message else None
    return replace(found, via=via) if isinstance(found, Lease) else found


def _taken(frame: Frame, mac: bytes, address: IPv4Address) -> bytes | None:
    """Returns the MAC address of the host that has the address."""
    try:
        heard = packets.decode_arp(frame.data)
    except Malformed:
        return None
    return heard.sender_mac if packets.is_taken(heard, mac, address) else None


async def _first(frames: _FrameQueue[Frame], interpret: Callable[[Frame], T | None], wait: float) -> T | None:
    """Returns the meaning of the first relevant frame; None when none came in time."""
    try:
        async with asyncio.timeout(wait):
            while True:
                found = interpret(await frames.next())
                if found is not None:
                    return found
    except TimeoutError:
        return None
