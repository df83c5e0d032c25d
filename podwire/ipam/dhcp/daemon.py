"""The daemon of the CNI plugin dhcp: acquires leases in pods' namespaces, and renews them while the pods live.

A connection is one call (`calls.py`): a line with a JSON object that has a `verb`, then a line with the answer or with
a CNI error. A caller that disconnects has given up: what was begun for it is cancelled.

| verb    | action |
|---|---|
| acquire | a lease for an interface that exists in the pod; the present one if it has time left. Answers a CNI result |
| check   | answers the leased address; an error if the lease has ended |
| release | sends DHCPRELEASE and removes the record; succeeds without a lease |
| list    | answers the containers and interfaces of a network that have leases |
| status  | an empty answer |

A lease that is lost, because no server renewed it in time or one withdrew it, may be another host's: its address is
removed from the pod. It is added again, with the leased routes, when a server grants the same address again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import TypeVar

import msgspec

from podwire.durable.codecs import json_codec
from podwire.durable.records import NewerFormat, Records
from podwire.ipam.dhcp.calls import owner_id
from podwire.ipam.dhcp.client import DhcpClient, NoLease, Timing
from podwire.ipam.dhcp.lease_keeper import REGAIN, LeaseChange, LeaseEvent, LeaseKeeper, Policy
from podwire.ipam.dhcp.lease_records import LeaseRecord, LeaseRecords, PodLocation
from podwire.ipam.dhcp.owners import Owner
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import identity
from podwire.linux.values import Route as KernelRoute
from podwire.protocols.cni import errors, results
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, IP, Result, Route
from podwire.protocols.cni.values import Object, dumped
from podwire.protocols.cni.versions import LATEST
from podwire.protocols.dhcp.leases import Lease

_log = logging.getLogger("podwire.ipam")

_FORMAT = 1
_CODEC = json_codec(LeaseRecord[Owner], enc_hook=str, dec_hook=lambda kind, value: kind(value))
_LINK_SCOPE = 253
_NOWHERE = IPv4Address(0)

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    exchange: Timing = field(default_factory=Timing)
    regain: float = REGAIN
    """Seconds between attempts to get a lost lease again."""
    receive: float = 10.0
    """Seconds for a call to arrive."""
    calls: int = 512
    """Calls at the same time; others are asked to try again later."""


class _Acquire(msgspec.Struct, frozen=True, kw_only=True):
    network: str
    container: str
    ifname: str
    netns: str
    inode: int
    """Of the namespace: the daemon may have another one at the same path."""
    client_id: bytes
    wishes: bytes
    provided: tuple[tuple[int, bytes], ...]
    priority: int
    parent: str


class _Attachment(msgspec.Struct, frozen=True, kw_only=True):
    network: str
    container: str
    ifname: str

    @property
    def id(self) -> str:
        return owner_id(self.network, self.container, self.ifname)


class _Network(msgspec.Struct, frozen=True, kw_only=True):
    network: str


class DhcpDaemon:
    def __init__(self, directory: Path | str, limits: Limits | None = None) -> None:
        """`directory` is that of the leases."""
        self._limits = limits or Limits()
        self._records: LeaseRecords[Owner] = LeaseRecords(Records(directory, _CODEC, format=_FORMAT))
        self._changes: asyncio.Queue[tuple[LeaseEvent[Owner], PodLocation]] = asyncio.Queue()
        self._keeper = LeaseKeeper(
            self._records,
            self._on_lease_event,
            DhcpClient(self._limits.exchange),
            policy=Policy.PODS,
            sent_options=lambda owner: owner.sent,
            regain=self._limits.regain,
        )
        self._calls = 0

    async def run(self) -> None:
        """Renews leases until cancelled. An instance that was killed may have regained a lease without restoring the
        address."""
        for record in await asyncio.to_thread(lambda: list(self._records.all())):
            if record.place is not None and await self._keeper.lease(record.key) is not None:
                self._on_lease_event(
                    LeaseEvent(key=record.key, what=LeaseChange.REGAINED, lease=record.lease, place=record.place)
                )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keeper.run())
            tasks.create_task(self._apply_changes())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers a connection."""
        self._calls += 1
        try:
            async with asyncio.timeout(self._limits.receive):
                line = await reader.readline()
            if line.endswith(b"\n"):
                writer.write(dumped(await self._answer_while_connected(line, reader)) + b"\n")
                await writer.drain()
        except (TimeoutError, ValueError, OSError) as error:  # ValueError: the line is too long
            _log.warning("dhcp daemon lost a call", extra={"error": str(error)})
        finally:
            self._calls -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer_while_connected(self, line: bytes, reader: asyncio.StreamReader) -> Object:
        answering = asyncio.ensure_future(self.answer(line))
        disconnected = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((answering, disconnected), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise ConnectionResetError("caller disconnected")
            return answering.result()
        finally:
            for task in (answering, disconnected):
                task.cancel()
            await asyncio.wait((answering, disconnected))

    async def answer(self, line: bytes) -> Object:
        """Returns the answer to a call, or a CNI error as an object."""
        try:
            if self._calls > self._limits.calls:
                raise CniError(Code.TRY_AGAIN_LATER, f"the DHCP daemon has {self._limits.calls} calls already")
            verb = msgspec.json.decode(line, type=_Verb).verb
            verbs: dict[str, Callable[[bytes], Awaitable[Object]]] = {
                "acquire": self._acquire,
                "check": self._check,
                "release": self._release,
                "list": self._list,
                "status": self._status,
            }
            if verb not in verbs:
                raise CniError(Code.UNDECODABLE, f"the DHCP daemon has no verb {verb!r}")
            return await verbs[verb](line)
        except Exception as error:  # noqa: BLE001 - the caller gets every error
            refusal = _as_cni_error(error)
            if refusal.code == Code.INTERNAL:
                _log.exception("dhcp daemon call failed unexpectedly")
            return errors.encode(refusal, LATEST)

    async def _acquire(self, line: bytes) -> Object:
        request = _decoded(line, _Acquire)
        owner = Owner(
            network=request.network,
            container_id=request.container,
            ifname=request.ifname,
            client_id=request.client_id,
            wishes=request.wishes,
            provided=request.provided,
            priority=request.priority,
        )
        place = PodLocation(netns=request.netns, name=request.ifname, inode=request.inode)
        mac = await asyncio.to_thread(_bring_up, place)
        lease = await self._keeper.acquire(owner, link="", mac=mac, parent=request.parent, place=place)
        _log.info("acquired a DHCP lease", extra={"lease": str(owner), "address": str(lease.address)})
        return {"result": results.encode(result_of(lease, request.priority), LATEST)}

    async def _check(self, line: bytes) -> Object:
        attachment = _decoded(line, _Attachment)
        record = await asyncio.to_thread(self._records.get, attachment.id)
        if record is None:
            raise CniError(Code.NOT_AS_ADDED, f"{attachment.container} {attachment.ifname} has lost its DHCP lease")
        if await self._keeper.lease(record.key) is None:
            raise CniError(Code.NOT_AS_ADDED, f"the DHCP lease of {record.lease.address.ip} has ended")
        return {"address": str(record.lease.address)}

    async def _release(self, line: bytes) -> Object:
        await self._keeper.release(_decoded(line, _Attachment).id)
        return {}

    async def _list(self, line: bytes) -> Object:
        network = _decoded(line, _Network).network
        records = await asyncio.to_thread(lambda: list(self._records.all()))
        owners = [record.key for record in records if record.key.network == network]
        return {"leases": [[owner.container_id, owner.ifname] for owner in owners]}

    async def _status(self, _line: bytes) -> Object:
        return {}

    def _on_lease_event(self, event: LeaseEvent[Owner]) -> None:
        if event.what in (LeaseChange.LOST, LeaseChange.REGAINED) and event.place is not None:
            self._changes.put_nowait((event, event.place))

    async def _apply_changes(self) -> None:
        while True:
            event, place = await self._changes.get()
            try:
                await asyncio.to_thread(_apply, event, place)
            except linux.LinuxError as error:
                fields = {"lease": str(event.key), "address": str(event.lease.address), "error": str(error)}
                _log.warning("cannot change leased address in pod", extra=fields)


class _Verb(msgspec.Struct, frozen=True):
    verb: str


def result_of(lease: Lease, priority: int = 0) -> Result:
    """Returns the CNI result of a lease. A route without a gateway has the gateway 0.0.0.0 and link scope, as in the
    reference plugin: one without any would get that of the address."""
    routes = tuple(
        Route(
            dst=route.destination,
            gw=route.gateway or _NOWHERE,
            priority=priority,
            scope=None if route.gateway else _LINK_SCOPE,
        )
        for route in lease.routes
    )
    dns = DNS(nameservers=tuple(map(str, lease.dns)), domain=lease.domain, search=lease.search)
    return Result(ips=(IP(lease.address, lease.router),), routes=routes, dns=dns)


def _bring_up(place: PodLocation) -> str:
    """Sets an interface up if it is down; returns its MAC address. Raises LinuxError, CniError."""
    _check_namespace(place)
    with KernelNetwork(place.netns) as pod:
        link = pod.links.get(place.name)
        if not link.up:
            pod.links.change(link.ifindex, up=True)
        return link.mac


def _check_namespace(place: PodLocation) -> None:
    if identity(place.netns) != place.inode:
        raise CniError(Code.BAD_NETNS, f"CNI_NETNS: the DHCP daemon has another namespace at {place.netns}")


def _apply(event: LeaseEvent[Owner], place: PodLocation) -> None:
    """Removes or adds a leased address in the pod, if the pod still exists. Raises LinuxError."""
    address = event.lease.address
    with suppress(linux.NoSuchNamespace, linux.WrongKind, linux.NoSuchLink, CniError):
        _check_namespace(place)
        with KernelNetwork(place.netns) as pod:
            index = pod.links.get(place.name).ifindex
            is_present = any(present.interface == address for present in pod.addresses.list(index))
            if event.what is LeaseChange.LOST and is_present:
                pod.addresses.delete(index, address)
            elif event.what is LeaseChange.REGAINED and not is_present:
                pod.addresses.add(index, address)
                for route in event.lease.routes:
                    with suppress(linux.RouteExists):
                        pod.routes.add(KernelRoute(route.destination, route.gateway, index, metric=event.key.priority))


def _decoded(line: bytes, kind: type[T]) -> T:
    return msgspec.json.decode(line, type=kind)


def _as_cni_error(error: Exception) -> CniError:
    if isinstance(error, CniError):
        return error
    codes: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Code], ...] = (
        (NoLease, Code.TRY_AGAIN_LATER),
        ((linux.NoSuchNamespace, linux.WrongKind), Code.BAD_NETNS),
        (linux.LinuxError, Code.REFUSED),
        ((OSError, NewerFormat), Code.IO_FAILURE),
        (msgspec.MsgspecError, Code.UNDECODABLE),
    )
    code = next((code for kinds, code in codes if isinstance(error, kinds)), Code.INTERNAL)
    return CniError(code, str(error) or type(error).__name__)
