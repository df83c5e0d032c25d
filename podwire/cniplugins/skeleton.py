"""The part that all plugins share: how a runtime calls them, how they answer, how errors are reported.

Any exception leaves a plugin as one CNI error object on standard output and exit code 1 (CNI spec, section 2 "Error").
A plugin that gets SIGTERM undoes first what it has begun.
"""

import gc
import os
import select
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from podwire.ipam.deletions import TICK
from podwire.linux import errors as linux
from podwire.linux.proc.namespaces import identity
from podwire.linux.proc.processes import start_time
from podwire.linux.proc.stopwatch import Stopwatch, step
from podwire.protocols.cni import errors, results, versions
from podwire.protocols.cni.config import PluginConfig, Valid, check_paths, plugin_config, valid_attachments
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Object, dumped
from podwire.protocols.cni.verbs import Invocation, invocation

if TYPE_CHECKING:
    from podwire.cniplugins.netfilter import Netfilter

PLUGINS = {
    "bandwidth": "podwire.cniplugins.bandwidth.plugin",
    "bridge": "podwire.cniplugins.bridge.plugin",
    "dhcp": "podwire.cniplugins.dhcp.plugin",
    "dummy": "podwire.cniplugins.dummy.plugin",
    "firewall": "podwire.cniplugins.firewall.plugin",
    "host-device": "podwire.cniplugins.host_device.plugin",
    "host-local": "podwire.cniplugins.host_local.plugin",
    "ipvlan": "podwire.cniplugins.ipvlan.plugin",
    "loopback": "podwire.cniplugins.loopback.plugin",
    "macvlan": "podwire.cniplugins.macvlan.plugin",
    "portmap": "podwire.cniplugins.portmap.plugin",
    "ptp": "podwire.cniplugins.ptp.plugin",
    "route-override": "podwire.cniplugins.route_override.plugin",
    "sbr": "podwire.cniplugins.sbr.plugin",
    "static": "podwire.cniplugins.static.plugin",
    "tuning": "podwire.cniplugins.tuning.plugin",
    "vlan": "podwire.cniplugins.vlan.plugin",
    "vrf": "podwire.cniplugins.vrf.plugin",
}
"""Names of executables, and the modules that have a `PLUGIN`."""

_IPAM = "podwire.cniplugins.ipam_delegate"  # imports this module, so it is imported when it is needed

TIMINGS = "PODWIRE_CNI_TIMINGS"
"""A caller that sets this variable gets a line on standard error that begins with it and lists seconds per step."""

NETNS_OVERRIDE = "CNI_NETNS_OVERRIDE"

LARGEST_CONFIG = 16 << 20
"""Bytes of a configuration."""


class Limits(NamedTuple):
    """Seconds. A runtime gives a plugin 55 s or more, and the forwarder gives the daemon 55 s."""

    lock: float = 40.0
    """For another call for the same interface to finish: then code 11, "try again later"."""
    delegate: float = 50.0
    """For an IPAM executable."""
    port: float = 2.5
    """For a new veth pair to pass packets."""
    neighbour: float = 2.5
    """For neighbours to resolve a new IPv6 address."""


DeferWork = Callable[[Callable[[], None]], None]
"""Runs work that no caller needs to wait for, such as closing a socket for which the kernel cleans up."""


def run_now(work: Callable[[], None]) -> None:
    work()


class Streams(NamedTuple):
    """The environment and standard streams of a plugin: those of this process, or those that the daemon received."""

    environ: Mapping[str, str]
    read: Callable[[], bytes]
    write: Callable[[bytes], None]
    warn: Callable[[str], None]
    """Writes a line to the caller's standard error."""
    defer: DeferWork = run_now
    netfilter: "Netfilter | None" = None
    """Sockets that the daemon keeps open for calls from its own namespace."""
    is_disconnected: Callable[[], bool] = bool
    """Whether the caller no longer waits for the answer."""
    limits: Limits = Limits()
    started: Callable[[], int] = int
    """When the caller's executable was started, in nanoseconds since the boot; 0 if that is unknown."""


class Call(NamedTuple):
    """One CNI call: the request, and the streams of its caller."""

    invocation: Invocation
    config: PluginConfig
    environ: Mapping[str, str] = {}
    warn: Callable[[str], None] = lambda _line: None
    defer: DeferWork = run_now
    netfilter: "Netfilter | None" = None
    is_disconnected: Callable[[], bool] = bool
    limits: Limits = Limits()
    started: Callable[[], int] = int
    delegated: bool = False
    """Whether a plugin of ours calls an IPAM plugin in its own process, under the lock of its attachment."""
    also_valid: Callable[[], Valid] = frozenset
    """GC of an IPAM plugin: attachments to keep besides the valid ones: the calling plugin has their records."""


class Plugin:
    """A CNI plugin. One that has no state of its own leaves GC and STATUS to its IPAM plugin, if it has one."""

    name: str

    def add(self, call: Call) -> Result:
        raise NotImplementedError

    def check(self, call: Call) -> None:
        raise NotImplementedError

    def delete(self, call: Call) -> None:
        raise NotImplementedError

    def gc(self, call: Call, valid: Valid) -> None:
        import_module(_IPAM).gc(call, valid)

    def status(self, call: Call) -> None:
        import_module(_IPAM).status(call)

    def check_request(self, call: Call) -> object:
        """IPAM plugins: raises CniError for a configuration that cannot be satisfied; changes nothing."""
        return None


class _Terminated(BaseException):
    """The process got a signal that asks it to end."""


def main(name: str) -> NoReturn:
    """Runs a plugin as a process, and exits without the interpreter's slow clean-up."""
    gc.disable()
    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass  # a closed standard stream would otherwise become one of our descriptors, and be written to
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _terminate)
    parent = os.getppid()
    streams = Streams(
        os.environ,
        _read_stdin,
        _write_stdout,
        _write_stderr,
        is_disconnected=lambda: _is_abandoned(parent),
        started=lambda: started_at(os.getpid()),
    )
    try:
        code = answer(name, streams)
    except OSError:
        code = 1  # the caller does not read the answer
    os._exit(code)


def _terminate(number: int, _frame: object) -> None:
    for stop_signal in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(stop_signal, signal.SIG_IGN)  # the undo must not be interrupted
    raise _Terminated(f"stopped by {signal.Signals(number).name}")


def _is_abandoned(parent: int) -> bool:
    """Whether the runtime has ended, or has closed the pipe for the answer."""
    poll = select.poll()
    poll.register(1, 0)  # POLLERR and POLLHUP are always reported
    return os.getppid() != parent or bool(poll.poll(0))


def started_at(pid: int) -> int:
    """Returns when a process was started, in nanoseconds since the boot; 0 if it has ended."""
    try:
        return start_time(pid) * TICK
    except linux.NoSuchProcess:
        return 0


def check_late(call: Call, is_deleted: Callable[[int], bool]) -> None:
    """Raises CniError for an ADD that nobody waits for, or whose DEL is done; called under the lock of its DEL.

    `is_deleted` says whether a DEL ended after a time.
    """
    if call.is_disconnected():
        raise CniError(Code.TRY_AGAIN_LATER, "caller disconnected")  # its DEL may already be done
    started = 0 if call.delegated else call.started()
    if started and is_deleted(started):
        who = f"{call.invocation.container_id} {call.invocation.ifname}"
        raise CniError(Code.UNKNOWN_CONTAINER, f"{who} was deleted while this ADD waited")


def answer(name: str, streams: Streams) -> int:
    """Does what the CNI environment asks for; returns the exit code."""
    environ = streams.environ
    if "CNI_COMMAND" not in environ:
        about = f"podwire {name}: a CNI plugin, for versions {', '.join(versions.KNOWN)}"
        streams.warn(f"{about}; its daemon is `podwire cni dhcp-daemon`" if name == "dhcp" else about)
        return 0
    version = versions.LATEST
    stopwatch = Stopwatch().__enter__() if TIMINGS in environ else None
    try:
        request = invocation(environ)
        if request.command == "VERSION":
            streams.write(dumped({"cniVersion": versions.LATEST, "supportedVersions": versions.KNOWN}))
            return 0
        config = plugin_config(streams.read())
        version = config.version
        plugin = _load(name, request, version)
        call = Call(
            request,
            config,
            environ,
            streams.warn,
            streams.defer,
            streams.netfilter,
            streams.is_disconnected,
            streams.limits,
            streams.started,
        )
        if request.command != "DEL":
            check_paths(config, request)
        if request.command == "ADD":
            streams.write(dumped(results.encode(plugin.add(call), version)))
        elif request.command == "GC":
            plugin.gc(call, valid_attachments(config.raw))
        else:
            {"CHECK": plugin.check, "DEL": plugin.delete, "STATUS": plugin.status}[request.command](call)
    except (Exception, _Terminated) as error:  # noqa: BLE001 - the one place where errors become answers
        refusal = _bad_namespace(error, environ) or as_cni_error(error)
        if refusal.code == Code.INTERNAL and refusal.__cause__ is not None:
            streams.warn(_traceback(refusal.__cause__))
        streams.write(dumped(errors.encode(refusal, version)))
        return 1
    finally:
        if stopwatch is not None:
            stopwatch.__exit__(None, None, None)
            streams.warn(timings_line(stopwatch))
    return 0


def _load(name: str, request: Invocation, version: str) -> Plugin:
    if not versions.at_least(version, request.verb.since):
        message = f"config version does not allow {request.command}"
        raise CniError(Code.INCOMPATIBLE_VERSION, message, f"cniVersion is {version}, needed is {request.verb.since}")
    if name not in PLUGINS:
        raise CniError(Code.BAD_CONFIG, f"{name!r} is not a podwire plugin; there are {', '.join(PLUGINS)}")
    with step("import"):
        plugin: Plugin = import_module(PLUGINS[name]).PLUGIN
    return plugin


def timings_line(stopwatch: Stopwatch) -> str:
    """Formats `[seconds, times]` of each step."""
    steps = {name: [seconds, stopwatch.times.get(name, 1)] for name, seconds in stopwatch.seconds.items()}
    return f"{TIMINGS} {dumped(steps).decode()}"


_CODES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Code], ...] = (
    ((linux.Busy, linux.DeadlinePassed, _Terminated), Code.TRY_AGAIN_LATER),
    ((linux.NoSuchNamespace, linux.WrongKind), Code.BAD_NETNS),
    ((linux.OutOfResources, linux.NoSuchPath), Code.IO_FAILURE),
    (linux.LinuxError, Code.REFUSED),
    (OSError, Code.IO_FAILURE),
)


def as_cni_error(error: BaseException) -> CniError:
    """Translates an exception for the runtime; one of an unexpected type becomes the cause of code 999."""
    if isinstance(error, CniError):
        return error
    for types, code in _CODES:
        if isinstance(error, types):
            return CniError(code, str(error), "; ".join(getattr(error, "__notes__", ())))
    internal = CniError(Code.INTERNAL, f"{type(error).__name__}: {error}")
    internal.__cause__ = error
    return internal


def _bad_namespace(error: BaseException, environ: Mapping[str, str]) -> CniError | None:
    """The words of the reference plugins for a path at which there is no network namespace."""
    if not isinstance(error, linux.NoSuchNamespace | linux.WrongKind):
        return None
    path = environ.get("CNI_NETNS", "")
    reason = f'failed to Statfs "{path}": no such file or directory'
    if os.path.exists(path):
        reason = f'unknown FS magic on "{path}"'
    return CniError(Code.BAD_NETNS, f'failed to open netns "{path}": {reason}', str(error))


def _traceback(error: BaseException) -> str:
    from traceback import format_exception  # noqa: PLC0415 - imported only for a bug

    return "".join(format_exception(error)).rstrip()


def run_all(*steps: Callable[[], Any]) -> None:
    """Runs every step of a clean-up, also after one has failed; then raises the first error with the others in it."""
    failures: list[CniError] = []
    for run in steps:
        try:
            run()
        except Exception as error:  # noqa: BLE001 - the other steps must run
            failures.append(as_cni_error(error))
    if failures:
        others = "; ".join(filter(None, (failures[0].details, *map(str, failures[1:]))))
        raise CniError(failures[0].code, failures[0].msg, others) from failures[0].__cause__


def pod_namespace(call: Call) -> int:
    """Returns the inode of the pod's network namespace. Raises CniError if it is the host's, unless the caller set
    CNI_NETNS_OVERRIDE, which the reference's skeleton has for runtimes that run in the namespace themselves."""
    inode = identity(call.invocation.netns)
    allowed = call.environ.get(NETNS_OVERRIDE, "").upper() in ("1", "TRUE")
    if inode == identity("/proc/thread-self/ns/net") and not allowed:
        raise CniError(Code.BAD_NETNS, f"CNI_NETNS: {call.invocation.netns} is the namespace of the host")
    return inode


def require_previous(call: Call, after: str = "", words: str = "Required prevResult missing") -> Result:
    """`words` are those of the reference plugin."""
    previous = call.config.previous()
    if previous is None:
        raise CniError(Code.BAD_CONFIG, words, "prevResult: missing" + after)
    return previous


def changed_config(call: Call, raw: Object) -> Call:
    return call._replace(config=call.config._replace(raw=raw))


def _read_stdin() -> bytes:
    chunks, size = [], 0
    try:
        while chunk := os.read(0, 1 << 16):
            chunks.append(chunk)
            size += len(chunk)
            if size > LARGEST_CONFIG:
                raise CniError(Code.IO_FAILURE, f"standard input: more than {LARGEST_CONFIG} bytes")
    except OSError as error:
        raise CniError(Code.IO_FAILURE, f"standard input: {error.strerror}") from error
    return b"".join(chunks)


def _write_stderr(line: str) -> None:
    with suppress(OSError):
        os.write(2, f"{line}\n".encode("utf-8", "backslashreplace"))


def _write_stdout(data: bytes) -> None:
    left = memoryview(data + b"\n")
    while left:
        left = left[os.write(1, left) :]
