"""Frames as they are on one link, for what must be said before a link has an address; and datagrams bound to a link.

Both sockets belong to the namespace that they were opened in, and keep it alive until they are closed. Nothing here
waits: `read` takes what has come, and an event loop watches `fileno()`.
"""

import ctypes
import errno
from _socket import (
    AF_INET,
    AF_PACKET,
    SO_BINDTODEVICE,
    SO_BROADCAST,
    SO_REUSEADDR,
    SOCK_CLOEXEC,
    SOCK_DGRAM,
    SOCK_NONBLOCK,
    SOCK_RAW,
    SOL_SOCKET,
    if_indextoname,
    if_nametoindex,
    socket,
)
from collections.abc import Callable
from contextlib import ExitStack
from struct import Struct
from typing import NamedTuple, TypeVar

from podwire.linux import errors
from podwire.linux.proc.namespaces import visit
from podwire.linux.values import Path

IPV4, ARP = 0x0800, 0x0806

_FLAGS = SOCK_CLOEXEC | SOCK_NONBLOCK
_SOL_PACKET, _MEMBERSHIP, _AUXDATA = 263, 1, 8
_PROMISCUOUS = 1
_REQUEST = Struct("=iHH8s")  # struct packet_mreq
_BESIDE = Struct("=IIIHHHH")  # struct tpacket_auxdata
_NO_CHECKSUM_YET = 1 << 3
_ATTACH_FILTER = 26
_INSTRUCTION = Struct("=HBBI")
_PROGRAM = Struct("@HP")
_LARGEST = 1 << 16
_NAMES: errors.Names = {
    errno.ENODEV: errors.NoSuchLink,
    errno.ENXIO: errors.NoSuchLink,
    errno.EMFILE: errors.OutOfResources,
    errno.ENFILE: errors.OutOfResources,
    errno.ENOBUFS: errors.OutOfResources,
}

T = TypeVar("T")


class Frame(NamedTuple):
    data: bytes
    """From the Ethernet header on."""
    checksummed: bool
    """False for one of this machine whose checksum was left to a card that it never met."""


class Datagram(NamedTuple):
    data: bytes
    sender: tuple[str, int]


class FrameSocket:
    """Hears one kind of frames on one link, and sends any."""

    def __init__(self, ifindex: int, kind: int, *, udp_port: int = 0, netns: Path | int | None = None) -> None:
        """Receives IPv4 frames; with a port, only UDP to it: the kernel filters the rest.

        NoSuchLink.
        """
        program = _to_port(udp_port) if udp_port else b""
        self._ifindex = ifindex
        self._socket = _entered(netns, lambda: _opened(ifindex, kind, program), "hear frames")

    def set_promiscuous(self) -> None:
        """Also what is sent to hardware addresses that are not the link's, until the socket is closed."""
        try:
            membership = _REQUEST.pack(self._ifindex, _PROMISCUOUS, 0, b"")
            self._socket.setsockopt(_SOL_PACKET, _MEMBERSHIP, membership)
        except OSError as error:
            raise errors.from_oserror(error, "hear all frames", _NAMES) from error

    @property
    def mac(self) -> bytes:
        """Returns the MAC address of the link."""
        mac: bytes = self._socket.getsockname()[4]
        return mac

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Unreachable while the link is down."""
        try:
            self._socket.send(frame)
        except OSError as error:
            raise errors.from_oserror(error, "send a frame", _NAMES) from error

    def read(self) -> list[Frame]:
        found: list[Frame] = []
        while True:
            try:
                data, beside, _, _ = self._socket.recvmsg(_LARGEST, 64)
            except BlockingIOError:
                return found
            except OSError as error:  # ENETDOWN is reported once, when the link goes down
                raise errors.from_oserror(error, "hear frames", _NAMES) from error
            found.append(Frame(data, _is_checksummed(beside)))

    def close(self) -> None:
        self._socket.close()


class DatagramSocket:
    """UDP from and to one address, over one link and no other."""

    def __init__(self, link: str, address: str, port: int, *, netns: Path | int | None = None) -> None:
        self._socket = _entered(netns, lambda: _bound(link, address, port), f"speak UDP as {address} on {link}")

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes, to: tuple[str, int]) -> None:
        try:
            self._socket.sendto(data, to)
        except OSError as error:
            raise errors.from_oserror(error, f"send UDP to {to[0]}", _NAMES) from error

    def read(self) -> list[Datagram]:
        """Returns received datagrams. ICMP errors of earlier ones are reported here, too, and are ignored."""
        found: list[Datagram] = []
        while True:
            try:
                found.append(Datagram(*self._socket.recvfrom(_LARGEST)))
            except BlockingIOError:
                return found
            except ConnectionRefusedError:
                continue
            except OSError as error:
                raise errors.from_oserror(error, "hear UDP", _NAMES) from error

    def close(self) -> None:
        self._socket.close()


def index_of(link: str, netns: Path | int | None = None) -> int:
    """NoSuchLink."""

    def find() -> int:
        try:
            return if_nametoindex(link)
        except OSError as error:  # Python tells no number with it
            raise errors.NoSuchLink(errno.ENODEV, f"find the link {link}") from error

    return _entered(netns, find, f"find the link {link}")


def _entered(netns: Path | int | None, work: Callable[[], T], operation: str) -> T:
    try:
        if netns is None:
            return work()
        with visit(netns):
            return work()
    except errors.LinuxError:
        raise
    except OSError as error:
        raise errors.from_oserror(error, operation, _NAMES) from error


def _opened(ifindex: int, kind: int, program: bytes) -> socket:
    """It hears nothing before it is bound, so nothing slips past the filter."""
    with ExitStack() as undo:
        opened = socket(AF_PACKET, SOCK_RAW | _FLAGS, 0)
        undo.callback(opened.close)
        if program:
            held = ctypes.create_string_buffer(program, len(program))
            bpf_filter = _PROGRAM.pack(len(program) // _INSTRUCTION.size, ctypes.addressof(held))
            opened.setsockopt(SOL_SOCKET, _ATTACH_FILTER, bpf_filter)
        opened.setsockopt(_SOL_PACKET, _AUXDATA, 1)
        opened.bind((if_indextoname(ifindex), kind))
        undo.pop_all()
    return opened


def _bound(link: str, address: str, port: int) -> socket:
    with ExitStack() as undo:
        opened = socket(AF_INET, SOCK_DGRAM | _FLAGS, 0)
        undo.callback(opened.close)
        opened.setsockopt(SOL_SOCKET, SO_BINDTODEVICE, link.encode())
        opened.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        opened.setsockopt(SOL_SOCKET, SO_BROADCAST, 1)
        opened.bind((address, port))
        undo.pop_all()
    return opened


def _is_checksummed(beside: list[tuple[int, int, bytes]]) -> bool:
    """By what the kernel tells of each frame; in doubt it is."""
    for level, kind, data in beside:
        if (level, kind) == (_SOL_PACKET, _AUXDATA) and len(data) >= _BESIDE.size:
            return not _BESIDE.unpack_from(data)[0] & _NO_CHECKSUM_YET
    return True


def _to_port(port: int) -> bytes:
    """A program for the kernel: IPv4, UDP, a datagram's first piece, to this port. Jumps count from the next line."""
    load_half, load_byte, load_half_indexed, header_size = 0x28, 0x30, 0x48, 0xB1
    if_equal, if_set, answer = 0x15, 0x45, 0x06
    lines = (
        (load_half, 0, 0, 12),
        (if_equal, 0, 8, IPV4),
        (load_byte, 0, 0, 23),
        (if_equal, 0, 6, 17),
        (load_half, 0, 0, 20),
        (if_set, 4, 0, 0x1FFF),
        (header_size, 0, 0, 14),
        (load_half_indexed, 0, 0, 16),
        (if_equal, 0, 1, port),
        (answer, 0, 0, _LARGEST),
        (answer, 0, 0, 0),
    )
    return b"".join(_INSTRUCTION.pack(*line) for line in lines)
