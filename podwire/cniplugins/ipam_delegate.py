"""Delegation to an IPAM plugin (CNI spec, section 4): in this process if it is one of our own."""

import os
import stat
from contextlib import ExitStack
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

from podwire.cniplugins.skeleton import PLUGINS, Call, Plugin, changed_config, run_now
from podwire.linux import errors as linux
from podwire.linux.proc.processes import run
from podwire.linux.proc.stopwatch import step
from podwire.protocols.cni import results
from podwire.protocols.cni.caller import VARIABLE as CALLER
from podwire.protocols.cni.config import VALID_ATTACHMENTS, Valid, checked_type
from podwire.protocols.cni.errors import CniError, Code, decode
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Address, Object, dumped, loaded, taken

if TYPE_CHECKING:
    from podwire.ipam.entries import Owner
    from podwire.ipam.leases import Leases

IN_PROCESS = ("dhcp", "host-local", "static")
NEEDS_LINK = ("dhcp",)
"""IPAM plugins that ask over the pod's link, ours and the reference's: it is made before ADD, and deleted after DEL."""
STEP = "ipam"
"""The stopwatch's name of the time that an IPAM plugin takes."""
SIGNATURE = b"# podwire CNI plugin"
"""In the first lines of our scripts, and at the end of our compiled executables."""
_SIGNED_BYTES = 256


def ipam_type(config: Object) -> str:
    """Returns the name of the IPAM plugin; empty if the configuration has none."""
    kind = taken(taken(config, "ipam", dict, {}), "type", str, "", "ipam.")
    return checked_type(kind, "ipam.") if kind else ""


def needs_link(config: Object) -> bool:
    """Whether the IPAM plugin needs the pod's link. Never raises: DEL must go on with an invalid configuration."""
    try:
        return ipam_type(config) in NEEDS_LINK
    except CniError:
        return False


def check_available(call: Call) -> None:
    """Raises CniError if the IPAM plugin is missing or rejects its configuration: then not even an undo would work."""
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    if ours is not None:
        ours.check_request(call)
    elif kind:
        _executable(kind, call)


def add(call: Call) -> Result:
    """Leases addresses. If the IPAM plugin fails, it gets a DEL, because it may have leased some."""
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    with ExitStack() as undo:
        undo.push(partial(_delete_after_failure, call))
        with step(STEP):
            if ours is not None:
                result = ours.add(call._replace(delegated=True))
            else:
                result = results.decode(_execute(kind, call, "ADD"), call.config.version, f"result of {kind}")
        if not result.ips:
            raise CniError(Code.BAD_CONFIG, f"ipam: {kind} returned no address")
        undo.pop_all()
    return result


def _delete_after_failure(call: Call, _kind: object, error: BaseException | None, _traceback: object) -> None:
    """Sends DEL. If that fails, too, the error of the ADD is still the one to report."""
    try:
        delete(call)
    except Exception as also:
        if error is None:
            raise
        error.add_note(f"and its DEL failed: {also}")


def delete(call: Call) -> None:
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    with step(STEP):
        _execute(kind, call, "DEL") if ours is None else ours.delete(call._replace(delegated=True))


def check(call: Call) -> None:
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    with step(STEP):
        _execute(kind, call, "CHECK") if ours is None else ours.check(call)


def leased(call: Call) -> tuple[Address, ...]:
    """Returns the addresses of an attachment on this host's disk, whichever host-local leased them."""
    if ipam_type(call.config.raw) != "host-local":
        return ()
    leases, owner = _leases(call)
    return leases.of(owner)


def hand_over(call: Call) -> None:
    """Leaves a lease to the reference plugin host-local."""
    if ipam_type(call.config.raw) == "host-local":
        leases, owner = _leases(call)
        leases.hand_over(owner)


def _leases(call: Call) -> "tuple[Leases, Owner]":
    host_local, entries = import_module("podwire.ipam.host_local"), import_module("podwire.ipam.entries")
    owner = entries.Owner(call.invocation.container_id, call.invocation.ifname)
    return host_local.leases(call.config), owner


def gc(call: Call, valid: Valid) -> None:
    """Releases what the IPAM plugin has leased to attachments that are neither valid nor in `call.also_valid`."""
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    with step(STEP):
        if ours is not None:
            ours.gc(call, valid)
        elif kind:
            listed = [{"containerID": id_, "ifname": ifname} for id_, ifname in sorted(valid | call.also_valid())]
            _execute(kind, changed_config(call, call.config.raw | {VALID_ATTACHMENTS: listed}), "GC")


def status(call: Call) -> None:
    """Raises CniError if the IPAM plugin has no address for one more attachment."""
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    with step(STEP):
        if ours is not None:
            ours.status(call)
        elif kind and _find_executable(kind, call.invocation.path) is None:
            raise CniError(Code.UNAVAILABLE, f"ipam.type: {kind} is not in CNI_PATH {call.invocation.path!r}")
        elif kind:
            _execute(kind, call, "STATUS")


def _ours(kind: str, call: Call) -> Plugin | None:
    """Returns the plugin that this process can call: the executable in CNI_PATH is ours, or there is none."""
    if kind not in IN_PROCESS:
        return None
    path = _find_executable(kind, call.invocation.path)
    if path is not None and not is_ours(path):
        return None
    plugin: Plugin = import_module(PLUGINS[kind]).PLUGIN
    return plugin


def is_ours(path: str) -> bool:
    """Whether an executable is one of podwire's."""
    status = os.stat(path)
    return _has_signature(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=64)
def _has_signature(path: str, _version: tuple[int, ...]) -> bool:
    """Reads each version of a file once: the daemon asks for the same few files at each call."""
    with open(path, "rb") as file:
        head = file.read(_SIGNED_BYTES)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _SIGNED_BYTES))
        return SIGNATURE in head or SIGNATURE in file.read(_SIGNED_BYTES)


def _find_executable(kind: str, path: str) -> str | None:
    for directory in filter(None, path.split(":")):
        executable = f"{directory}/{kind}"
        try:
            if stat.S_ISREG(os.stat(executable).st_mode) and os.access(executable, os.X_OK):
                return executable
        except OSError:
            continue
    return None


def _executable(kind: str, call: Call) -> str:
    path = _find_executable(kind, call.invocation.path)
    if path is None:
        path = call.invocation.path
        message = f'failed to find plugin "{kind}" in path [{path.replace(":", " ")}]'
        raise CniError(Code.BAD_CONFIG, message, f"ipam.type: {kind} is not in CNI_PATH {path!r}")
    return path


def _execute(kind: str, call: Call, verb: str) -> object:
    request = call.invocation._replace(command=verb)
    executable = _executable(kind, call)
    kept = {name: call.environ[name] for name in ("PATH", CALLER) if name in call.environ}
    environment = {**request.environment(), "PATH": "", **kept}
    # Without a daemon the delegate stays in this process's group, which the runtime kills.
    group, seconds = call.defer is not run_now, call.limits.delegate
    try:
        done = run((executable,), env=environment, stdin=dumped(call.config.raw), deadline=seconds, group=group)
    except linux.DeadlinePassed as error:
        raise CniError(Code.TRY_AGAIN_LATER, f"{kind}: {verb} did not end within {seconds:g} s") from error
    if done.stderr:
        call.warn(done.stderr.decode("utf-8", "backslashreplace").rstrip())
    try:
        value = loaded(done.stdout, f"output of {kind}") if done.stdout.strip() else None
    except CniError as error:
        output = done.stdout[:512].decode("utf-8", "backslashreplace")
        raise CniError(Code.UNDECODABLE, f"{kind}: {verb} ended with {done.code} and no JSON", output) from error
    refusal = decode(value)
    if refusal is not None:
        raise refusal  # unchanged: a delegate's error is the plugin's (CNI spec, section 4)
    if done.code:
        output = done.stderr[:512].decode("utf-8", "backslashreplace").strip()
        raise CniError(Code.INTERNAL, f"{kind}: {verb} ended with {done.code}", output)
    return value
