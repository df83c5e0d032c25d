"""Calls of the CNI plugin dhcp to its daemon: one JSON object each way, each in a line, over a Unix socket. Blocking.

Short-lived programs import this: no asyncio, no msgspec.
"""

import os
from contextlib import suppress

from podwire.ipam.dhcp.request import leases_directory
from podwire.protocols.cni.errors import CniError, Code, decode
from podwire.protocols.cni.values import Object, dumped, loaded_object
from podwire.transports import unix_call

_CONNECT = 5.0
LARGEST = 1 << 20
"""Bytes of a call, and of an answer."""


class NoDaemon(CniError):
    """No daemon listens on the socket."""


def owner_id(network: str, container_id: str, ifname: str) -> str:
    """Returns the name of the owner's record: the three together may be longer than a file's name."""
    import hashlib  # noqa: PLC0415 - the plugin, a short-lived program, needs it only without the daemon

    return hashlib.sha256(f"{network}\0{container_id}\0{ifname}".encode()).hexdigest()[:32]


def check_daemon(path: str) -> None:
    """Raises NoDaemon."""
    try:
        unix_call.check_listener(path, _CONNECT)
    except unix_call.NotListening as error:
        raise _no_daemon(path, error) from error


def call(path: str, request: Object, seconds: float) -> Object:
    """Returns the daemon's answer. Raises its error, and NoDaemon before anything was requested."""
    try:
        answer = unix_call.exchange_line(path, dumped(request) + b"\n", seconds, LARGEST)
    except unix_call.NotListening as error:
        raise _no_daemon(path, error) from error
    except TimeoutError as error:
        message = f"DHCP daemon at {path} did not answer within {seconds:g} s"
        raise CniError(Code.TRY_AGAIN_LATER, message) from error
    except OSError as error:
        message = f"DHCP daemon at {path} ended before it answered: {error.strerror or error}"
        raise CniError(Code.TRY_AGAIN_LATER, message) from error
    if not answer:
        raise CniError(Code.TRY_AGAIN_LATER, f"DHCP daemon at {path} ended before it answered")
    value = loaded_object(answer, f"{path}: answer of a daemon that is not podwire's")
    refusal = decode(value)
    if refusal is not None:
        raise refusal
    return value


def has_lease(path: str, network: str, container_id: str, ifname: str) -> bool:
    """Whether a daemon, running or not, has a record of a lease."""
    return any(name.startswith(owner_id(network, container_id, ifname)) for name in _records(path))


def has_leases(path: str) -> bool:
    """Whether a daemon, running or not, has a record of any lease."""
    return any(not name.startswith(".") for name in _records(path))


def _records(path: str) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(leases_directory(path))
    return []


def _no_daemon(path: str, error: OSError) -> NoDaemon:
    message = f"error dialing DHCP daemon: {path}: {error.strerror}"
    return NoDaemon(Code.TRY_AGAIN_LATER, message, "`podwire cni dhcp-daemon` must run")
