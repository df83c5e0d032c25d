"""What a forked component does before and around its work: a session, a log, a mark, its node, an event loop."""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from podwire import logs
from podwire.cluster.daemons import run_until_stopped, tune_garbage_collector
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.linux import syscalls

_log = logging.getLogger("podwire.up")

Ready = Callable[[], None]
Work = Callable[[Ready], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One process of a cluster. `work` runs in the child until it is cancelled, and calls what it is given when up."""

    name: str
    work: Work
    needs: tuple[str, ...] = ()
    """Who must be ready before it is started."""
    before: Callable[[], None] | None = None
    """What it does on the host before it goes to its node: nothing of the host can be reached from there."""
    node: NodeNamespaces | None = None
    """Where it runs; None is the host."""
    once: bool = False
    """It does one thing and ends."""
    troubles: tuple[type[BaseException], ...] = ()
    """What is told in one line, without a traceback: the operator can mend it."""
    environment: dict[str, str] = field(default_factory=dict)


def become(component: Component, layout: Layout, told: int, close: Callable[[], None]) -> NoReturn:
    """Be the component, in a process that was just forked, and end with it."""
    code = 70
    try:
        close()
        _detach(component.name)
        _log_to(layout.log(component.name))
        mark = _mark(layout.marks / component.name)
        os.environ.update(component.environment)
        if component.before is not None:
            component.before()
        if component.node is not None:
            component.node.enter()
        code = _serve(component, told)
        os.close(mark)
    except component.troubles as error:
        _log.error("%s", error)
        code = 1
    except BaseException:  # noqa: BLE001 - the end of the process; whatever it was stands in the log
        _log.exception("%s ended", component.name)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _detach(name: str) -> None:
    """A session of its own, so that a terminal's Ctrl-C reaches the supervisor only; an end with the supervisor's."""
    parent = os.getppid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    syscalls.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    syscalls.set_name(f"pw-{name}")


def write_to(path: Path) -> None:
    """What this process says goes to the end of a file, and nobody tells it anything."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for source, target in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(source, target, inheritable=True)
    os.close(file)
    os.close(nothing)


def _log_to(path: Path) -> None:
    write_to(path)
    sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", buffering=1, closefd=False) for descriptor in (1, 2))
    logs.set_up(stream=sys.stderr)


def _mark(path: Path) -> int:
    """The open file by which this process is known for as long as it lives."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _serve(component: Component, told: int) -> int:
    def ready() -> None:
        tune_garbage_collector()
        os.write(told, b"r")

    run_until_stopped(component.work(ready), (signal.SIGTERM,))
    return 0
