"""What all plugins share: how they are called, how they answer, how they say no.

One door for errors: whatever happens inside leaves as one JSON object on standard output and exit code 1. A plugin that
is asked to stop undoes first what it has begun.
"""

import gc
import os
import signal
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from podwire.linux import errors as linux
from podwire.linux.namespaces import identity
from podwire.protocols.cni import errors, results, versions
from podwire.protocols.cni.config import PluginConfig, plugin_config
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Object, dumped
from podwire.protocols.cni.verbs import Invocation, invocation

PLUGINS = {
    "bridge": "podwire.cniplugins.bridge",
    "host-local": "podwire.cniplugins.host_local",
    "loopback": "podwire.cniplugins.loopback",
    "portmap": "podwire.cniplugins.portmap",
}
"""Names of programs, and the modules that have a `PLUGIN`."""

LARGEST = 16 << 20
"""Bytes of a configuration."""


class Call(NamedTuple):
    invocation: Invocation
    config: PluginConfig


class Plugin(NamedTuple):
    name: str
    add: Callable[[Call], Result]
    check: Callable[[Call], None]
    delete: Callable[[Call], None]


class _Stopped(BaseException):
    """Somebody asked the process to end."""


def main(name: str) -> NoReturn:
    """Be a plugin, then end at once: the kernel tidies up faster than the interpreter."""
    gc.disable()
    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass  # a closed standard file would become one of ours, and be written to
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, _stop)
    try:
        code = answer(name, os.environ, _read, _write)
    except OSError:
        code = 1  # nobody hears us
    os._exit(code)


def _stop(number: int, _frame: object) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # undoing is not to be interrupted
    raise _Stopped(f"stopped by {signal.Signals(number).name}")


def answer(name: str, environ: Mapping[str, str], read: Callable[[], bytes], write: Callable[[bytes], None]) -> int:
    """Do what the environment asks for; the exit code."""
    if "CNI_COMMAND" not in environ:
        told = f"podwire {name}: a CNI plugin, for versions {', '.join(versions.KNOWN)}\n"
        os.write(2, told.encode())
        return 0
    version = versions.LATEST
    try:
        asked = invocation(environ)
        if asked.command == "VERSION":
            write(dumped({"cniVersion": versions.LATEST, "supportedVersions": versions.KNOWN}))
            return 0
        config = plugin_config(read())
        version = config.version
        printed = _done(name, Call(asked, config))
        if printed is not None:
            write(dumped(printed))
    except BaseException as error:  # noqa: BLE001 - the one door for errors
        write(dumped(errors.encode(translated(error), version)))
        return 1
    return 0


def _done(name: str, call: Call) -> Object | None:
    command, version = call.invocation.command, call.config.version
    if not versions.at_least(version, call.invocation.verb.since):
        raise CniError(Code.INCOMPATIBLE_VERSION, f"{command} is not in version {version}")
    plugin: Plugin = import_module(PLUGINS[name]).PLUGIN
    if command == "ADD":
        return results.encode(plugin.add(call), version)
    verbs = {"CHECK": plugin.check, "DEL": plugin.delete}
    if command not in verbs:
        raise CniError(Code.BAD_ENVIRONMENT, f"CNI_COMMAND: podwire's {name} does not do {command}")
    verbs[command](call)
    return None


_CODES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Code], ...] = (
    ((linux.Busy, linux.DeadlinePassed, _Stopped), Code.TRY_AGAIN_LATER),
    ((linux.NoSuchNamespace, linux.WrongKind), Code.BAD_NETNS),
    ((linux.NoRoom, linux.NoSuchPath), Code.IO_FAILURE),
    (linux.LinuxError, Code.REFUSED),
    (OSError, Code.IO_FAILURE),
)


def translated(error: BaseException) -> CniError:
    """What a runtime is told of an exception."""
    if isinstance(error, CniError):
        return error
    for kinds, code in _CODES:
        if isinstance(error, kinds):
            return CniError(code, str(error), "; ".join(getattr(error, "__notes__", ())))
    from traceback import format_exception  # noqa: PLC0415 - only for what nobody expected

    os.write(2, "".join(format_exception(error)).encode())
    return CniError(Code.INTERNAL, f"{type(error).__name__}: {error}")


def all_of(*steps: Callable[[], Any]) -> None:
    """Take every step of giving back, whatever becomes of the others; then tell of all that failed."""
    failed: list[CniError] = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the others must have their turn
            failed.append(translated(error))
    if failed:
        others = "; ".join(filter(None, (failed[0].details, *map(str, failed[1:]))))
        raise CniError(failed[0].code, failed[0].msg, others)


def pod_netns(call: Call) -> int:
    """The identity of the pod's namespace, which must not be the one that we are in. Asked before anything is done."""
    there = identity(call.invocation.netns)
    if there == identity("/proc/thread-self/ns/net"):
        raise CniError(Code.BAD_NETNS, f"CNI_NETNS: {call.invocation.netns} is the namespace of the host")
    return there


def _read() -> bytes:
    chunks, size = [], 0
    try:
        while chunk := os.read(0, 1 << 16):
            chunks.append(chunk)
            size += len(chunk)
            if size > LARGEST:
                raise CniError(Code.IO_FAILURE, f"standard input: more than {LARGEST} bytes")
    except OSError as error:
        raise CniError(Code.IO_FAILURE, f"standard input: {error.strerror}") from error
    return b"".join(chunks)


def _write(data: bytes) -> None:
    left = memoryview(data + b"\n")
    while left:
        left = left[os.write(1, left) :]
