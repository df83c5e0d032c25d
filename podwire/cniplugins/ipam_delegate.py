"""IPAM by another plugin: in this process when it is our own host-local or static, else by calling its program."""

import os
import stat
from functools import lru_cache
from importlib import import_module

from podwire.cniplugins.skeleton import PLUGINS, Call, Plugin, at_once
from podwire.linux import errors as linux
from podwire.linux.proc.processes import Finished, run
from podwire.linux.proc.stopwatch import step
from podwire.protocols.cni import results
from podwire.protocols.cni.config import VALID_ATTACHMENTS, Valid, checked_type
from podwire.protocols.cni.errors import CniError, Code, decode
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Object, dumped, loaded, taken

_OURS = ("host-local", "static")
STEP = "ipam"
"""How a stopwatch calls it."""
MARK = b"# podwire CNI plugin"
"""In the first lines of our scripts, and at the end of our compiled programs."""
_MARKED = 256
SECONDS = 50.0
"""For one call; less than runtimes give us."""


def ipam_type(config: Object) -> str:
    """Empty when no addresses are wanted."""
    kind = taken(taken(config, "ipam", dict, {}), "type", str, "", "ipam.")
    return checked_type(kind, "ipam.") if kind else ""


def check_there(call: Call) -> None:
    """Asked before anything is done: without its delegate, or with words that it does not understand, a plugin could
    not even undo."""
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    if ours is not None:
        ours.check_wish(call)
    elif kind:
        _program(kind, call)


def add(call: Call) -> Result:
    """Addresses; when the delegate fails it is asked to clean up, as it may have begun."""
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    try:
        with step(STEP):
            if ours is not None:
                result = ours.add(call)
            else:
                result = results.decode(_call(kind, call, "ADD"), call.config.version, f"result of {kind}")
        if not result.ips:
            raise CniError(Code.BAD_CONFIG, f"ipam: {kind} gave no address")
    except BaseException as error:
        try:
            delete(call)
        except Exception as also:  # noqa: BLE001 - told with what it follows from
            error.add_note(f"and then {also}")
        raise
    return result


def delete(call: Call) -> None:
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    with step(STEP):
        _call(kind, call, "DEL") if ours is None else ours.delete(call)


def check(call: Call) -> None:
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    with step(STEP):
        _call(kind, call, "CHECK") if ours is None else ours.check(call)


def gc(call: Call, valid: Valid) -> None:
    """Free what the IPAM has for nobody who is valid, nor for one of the others; without any there is nothing to do."""
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    with step(STEP):
        if ours is not None:
            ours.gc(call, valid)
        elif kind:
            listed = [{"containerID": id_, "ifname": ifname} for id_, ifname in sorted(valid | call.others())]
            raw = call.config.raw | {VALID_ATTACHMENTS: listed}
            _call(kind, call._replace(config=call.config._replace(raw=raw)), "GC")


def status(call: Call) -> None:
    """Whether there would be an address for one more."""
    kind = ipam_type(call.config.raw)
    ours = _ours(kind, call)
    with step(STEP):
        if ours is not None:
            ours.status(call)
        elif kind and _found(kind, call.invocation.path) is None:
            raise CniError(Code.UNAVAILABLE, f"ipam.type: there is no {kind} in CNI_PATH {call.invocation.path!r}")
        elif kind:
            _call(kind, call, "STATUS")


def _ours(kind: str, call: Call) -> Plugin | None:
    """What this process can do by itself: the program in CNI_PATH is our own, or none is there."""
    if kind not in _OURS:
        return None
    path = _found(kind, call.invocation.path)
    if path is not None and not is_marked(path):
        return None
    plugin: Plugin = import_module(PLUGINS[kind]).PLUGIN
    return plugin


def is_marked(path: str) -> bool:
    """Whether a program is one of ours."""
    now = os.stat(path)
    return _is_marked(path, (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns))


@lru_cache(maxsize=64)
def _is_marked(path: str, _version: tuple[int, ...]) -> bool:
    """Looked at once for each version of it: a daemon is asked again and again."""
    with open(path, "rb") as file:
        head = file.read(_MARKED)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _MARKED))
        return MARK in head or MARK in file.read(_MARKED)


def _found(kind: str, path: str) -> str | None:
    for each in filter(None, path.split(":")):
        try:
            if stat.S_ISREG(os.stat(f"{each}/{kind}").st_mode) and os.access(f"{each}/{kind}", os.X_OK):
                return f"{each}/{kind}"
        except OSError:
            continue
    return None


def _program(kind: str, call: Call) -> str:
    program = _found(kind, call.invocation.path)
    if program is None:
        raise CniError(Code.BAD_CONFIG, f"ipam.type: there is no {kind} in CNI_PATH {call.invocation.path!r}")
    return program


def _call(kind: str, call: Call, verb: str) -> object:
    asked = call.invocation._replace(command=verb)
    program = _program(kind, call)
    environment = {**asked.environment(), "PATH": call.environ.get("PATH", "")}
    group = call.later is not at_once  # a program's delegate stays in the group that its runtime kills
    try:
        done = run((program,), env=environment, stdin=dumped(call.config.raw), deadline=SECONDS, group=group)
    except linux.DeadlinePassed as error:
        raise CniError(Code.TRY_AGAIN_LATER, f"{kind}: {verb} did not end within {SECONDS:g} s") from error
    if done.stderr:
        call.tell(done.stderr.decode("utf-8", "backslashreplace").rstrip())
    return _printed(kind, verb, done)


def _printed(kind: str, verb: str, done: Finished) -> object:
    try:
        value = loaded(done.stdout, f"output of {kind}") if done.stdout.strip() else None
    except CniError as error:
        told = done.stdout[:512].decode("utf-8", "backslashreplace")
        raise CniError(Code.UNDECODABLE, f"{kind}: {verb} ended with {done.code} and no JSON", told) from error
    refusal = decode(value)
    if refusal is not None:
        raise refusal  # as it is: a delegate's error is ours
    if done.code:
        told = done.stderr[:512].decode("utf-8", "backslashreplace").strip()
        raise CniError(Code.INTERNAL, f"{kind}: {verb} ended with {done.code}", told)
    return value
