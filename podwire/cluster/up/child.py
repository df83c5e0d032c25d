"""A forked component: its session, log, owner tag, node and event loop."""

import contextlib
import logging
import os
import select
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from podwire import logs
from podwire.cluster.daemons import run_until_stopped, tune_memory
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.linux import syscalls

_log = logging.getLogger("podwire.up")

Ready = Callable[[], None]
Work = Callable[[Ready], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One process of a cluster. `work` runs in the child until it is cancelled, and calls its argument when ready."""

    name: str
    work: Work
    needs: tuple[str, ...] = ()
    """Components that must be ready before it is started."""
    before: Callable[[], None] | None = None
    """Runs on the host before the process enters its node: nothing of the host can be reached from there."""
    hold: Callable[[], Sequence[int]] | None = None
    """Runs in the supervisor before the first start; returns descriptors, which each start of the component inherits,
    and other components only if they hold them, too. A bound socket keeps its queue while its component restarts."""
    node: NodeNamespaces | None = None
    """The namespaces in which it runs; None is the host."""
    once: bool = False
    """It does one thing and ends."""
    troubles: tuple[type[BaseException], ...] = ()
    """Exceptions that are logged in one line, without a traceback: the operator can fix the cause."""
    environment: dict[str, str] = field(default_factory=dict)


def become(component: Component, layout: Layout, ready_pipe: int, close: Callable[[], None]) -> NoReturn:
    """Runs the component in a process that was just forked, and exits with it."""
    code = 70
    try:
        close()
        _detach(component.name, ready_pipe)
        write_to(layout.log(component.name))
        sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", buffering=1, closefd=False) for descriptor in (1, 2))
        logs.set_up(stream=sys.stderr)
        # This process is identified by this open file as long as it lives.
        tag = os.open(
            layout.component_tags / component.name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        os.environ.update(component.environment)
        if component.before is not None:
            component.before()
        if component.node is not None:
            component.node.enter()
        code = _serve(component, ready_pipe)
        os.close(tag)
    except component.troubles as error:
        _log.error("component cannot run", extra={"component": component.name, "error": str(error)})
        code = 1
    except BaseException:  # noqa: BLE001 - logged, whatever it is: nothing after `os._exit` could report it
        _log.exception("component failed unexpectedly", extra={"component": component.name})
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _detach(name: str, ready_pipe: int) -> None:
    """Starts a session, so that Ctrl-C of a terminal reaches the supervisor only; dies with the supervisor.

    Whether the supervisor has just died is asked of the pipe that it reads: on a node, no process sees its parent.
    """
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    syscalls.die_with_parent(signal.SIGKILL)
    poll = select.poll()
    poll.register(ready_pipe, 0)  # POLLERR is always reported
    if poll.poll(0):
        os._exit(1)
    syscalls.set_name(f"pw-{name}")


def write_to(path: Path) -> None:
    """Redirects output to the end of a file, and input from /dev/null."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for source, target in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(source, target, inheritable=True)
    os.close(file)
    os.close(nothing)


def _serve(component: Component, ready_pipe: int) -> int:
    def ready() -> None:
        tune_memory()
        os.write(ready_pipe, b"r")

    run_until_stopped(component.work(ready), (signal.SIGTERM,))
    return 0
