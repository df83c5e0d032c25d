"""What all plugins share: how they are called, how they answer, how they say no.

One door for errors: whatever happens inside leaves as one JSON object on standard output and exit code 1. A plugin that
is asked to stop undoes first what it has begun.
"""

import gc
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from podwire.linux import errors as linux
from podwire.linux.proc.namespaces import identity
from podwire.linux.proc.stopwatch import Stopwatch, step
from podwire.protocols.cni import errors, results, versions
from podwire.protocols.cni.config import PluginConfig, Valid, plugin_config, valid_attachments
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Object, dumped
from podwire.protocols.cni.verbs import Invocation, invocation

if TYPE_CHECKING:
    from podwire.cniplugins.netfilter import Netfilter

PLUGINS = {
    "bandwidth": "podwire.cniplugins.bandwidth.plugin",
    "bridge": "podwire.cniplugins.bridge.plugin",
    "firewall": "podwire.cniplugins.firewall.plugin",
    "host-device": "podwire.cniplugins.host_device.plugin",
    "host-local": "podwire.cniplugins.host_local.plugin",
    "loopback": "podwire.cniplugins.loopback.plugin",
    "macvlan": "podwire.cniplugins.macvlan.plugin",
    "portmap": "podwire.cniplugins.portmap.plugin",
    "ptp": "podwire.cniplugins.ptp.plugin",
    "static": "podwire.cniplugins.static.plugin",
    "tuning": "podwire.cniplugins.tuning.plugin",
}
"""Names of programs, and the modules that have a `PLUGIN`."""

_DELEGATE = "podwire.cniplugins.ipam_delegate"  # which knows us

TIMINGS = "PODWIRE_CNI_TIMINGS"
"""Whoever sets it in the environment is told on standard error where the time went, in a line that begins so."""

LARGEST = 16 << 20
"""Bytes of a configuration."""


Later = Callable[[Callable[[], None]], None]
"""Does what nobody needs to wait for, such as closing a socket after which the kernel tidies up."""


def at_once(work: Callable[[], None]) -> None:
    work()


class Call(NamedTuple):
    invocation: Invocation
    config: PluginConfig
    environ: Mapping[str, str] = {}
    """Of the one who calls."""
    tell: Callable[[str], None] = lambda _line: None
    """Writes a line to the standard error of the one who calls."""
    later: Later = at_once
    netfilter: "Netfilter | None" = None
    """What the daemon keeps open for calls from its own namespace."""
    gone: Callable[[], bool] = bool
    """Whether nobody waits for the answer any more."""
    others: Callable[[], Valid] = frozenset
    """GC: who stays besides those who are valid; for an IPAM that works for another plugin."""


def _gc_of_ipam(call: Call, valid: Valid) -> None:
    import_module(_DELEGATE).gc(call, valid)


def _status_of_ipam(call: Call) -> None:
    import_module(_DELEGATE).status(call)


class Plugin(NamedTuple):
    """What a program does. One that keeps nothing by itself leaves GC and STATUS to its IPAM, if it has any."""

    name: str
    add: Callable[[Call], Result]
    check: Callable[[Call], None]
    delete: Callable[[Call], None]
    gc: Callable[[Call, Valid], None] = _gc_of_ipam
    status: Callable[[Call], None] = _status_of_ipam
    check_wish: Callable[[Call], object] = lambda _call: None
    """Of IPAM: refuses what cannot be meant, and changes nothing."""


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
        code = answer(name, Streams(os.environ, _read, _write, _tell))
    except OSError:
        code = 1  # nobody hears us
    os._exit(code)


def _stop(number: int, _frame: object) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # undoing is not to be interrupted
    raise _Stopped(f"stopped by {signal.Signals(number).name}")


class Streams(NamedTuple):
    """A plugin's surroundings: those of this process, or those that were sent to the daemon."""

    environ: Mapping[str, str]
    read: Callable[[], bytes]
    write: Callable[[bytes], None]
    tell: Callable[[str], None]
    later: Later = at_once
    netfilter: "Netfilter | None" = None
    gone: Callable[[], bool] = bool


def answer(name: str, streams: Streams) -> int:
    """Do what the environment asks for; the exit code."""
    environ = streams.environ
    if "CNI_COMMAND" not in environ:
        streams.tell(f"podwire {name}: a CNI plugin, for versions {', '.join(versions.KNOWN)}")
        return 0
    if TIMINGS not in environ:
        return _answered(name, streams)
    with Stopwatch() as stopwatch:
        code = _answered(name, streams)
    streams.tell(told_timings(stopwatch))
    return code


def _answered(name: str, streams: Streams) -> int:
    environ, write = streams.environ, streams.write
    version = versions.LATEST
    try:
        asked = invocation(environ)
        if asked.command == "VERSION":
            write(dumped({"cniVersion": versions.LATEST, "supportedVersions": versions.KNOWN}))
            return 0
        config = plugin_config(streams.read())
        version = config.version
        call = Call(asked, config, environ, streams.tell, streams.later, streams.netfilter, streams.gone)
        printed = _done(name, call)
        if printed is not None:
            write(dumped(printed))
    except BaseException as error:  # noqa: BLE001 - the one door for errors
        told = translated(error)
        if told.code == Code.INTERNAL and told.__cause__ is not None:
            streams.tell(_traceback(told.__cause__))
        write(dumped(errors.encode(told, version)))
        return 1
    return 0


def _done(name: str, call: Call) -> Object | None:
    command, version = call.invocation.command, call.config.version
    if not versions.at_least(version, call.invocation.verb.since):
        raise CniError(Code.INCOMPATIBLE_VERSION, f"{command} is not in version {version}")
    if name not in PLUGINS:
        raise CniError(Code.BAD_CONFIG, f"{name!r} is none of podwire's plugins {', '.join(PLUGINS)}")
    with step("import"):
        plugin: Plugin = import_module(PLUGINS[name]).PLUGIN
    if command == "ADD":
        return results.encode(plugin.add(call), version)
    if command == "GC":
        plugin.gc(call, valid_attachments(call.config.raw))
    else:
        {"CHECK": plugin.check, "DEL": plugin.delete, "STATUS": plugin.status}[command](call)
    return None


def told_timings(stopwatch: Stopwatch) -> str:
    """`seconds` and `times` of each step."""
    steps = {name: [seconds, stopwatch.times.get(name, 1)] for name, seconds in stopwatch.seconds.items()}
    return f"{TIMINGS} {dumped(steps).decode()}"


_CODES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Code], ...] = (
    ((linux.Busy, linux.DeadlinePassed, _Stopped), Code.TRY_AGAIN_LATER),
    ((linux.NoSuchNamespace, linux.WrongKind), Code.BAD_NETNS),
    ((linux.OutOfResources, linux.NoSuchPath), Code.IO_FAILURE),
    (linux.LinuxError, Code.REFUSED),
    (OSError, Code.IO_FAILURE),
)


def translated(error: BaseException) -> CniError:
    """What a runtime is told of an exception; what nobody expected is its cause."""
    if isinstance(error, CniError):
        return error
    for kinds, code in _CODES:
        if isinstance(error, kinds):
            return CniError(code, str(error), "; ".join(getattr(error, "__notes__", ())))
    told = CniError(Code.INTERNAL, f"{type(error).__name__}: {error}")
    told.__cause__ = error
    return told


def _traceback(error: BaseException) -> str:
    from traceback import format_exception  # noqa: PLC0415 - only for what nobody expected

    return "".join(format_exception(error)).rstrip()


def all_of(*steps: Callable[[], Any]) -> None:
    """Take every step of giving back, whatever becomes of the others; then tell of all that failed."""
    failed: list[CniError] = []
    for each in steps:
        try:
            each()
        except Exception as error:  # noqa: BLE001 - the others must have their turn
            failed.append(translated(error))
    if failed:
        others = "; ".join(filter(None, (failed[0].details, *map(str, failed[1:]))))
        raise CniError(failed[0].code, failed[0].msg, others) from failed[0].__cause__


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


def _tell(line: str) -> None:
    with suppress(OSError):
        os.write(2, f"{line}\n".encode("utf-8", "backslashreplace"))


def _write(data: bytes) -> None:
    left = memoryview(data + b"\n")
    while left:
        left = left[os.write(1, left) :]
