"""`podwire node`: runs programs on a node, and reboots it."""

import argparse
import os
import signal
from pathlib import Path
from typing import NoReturn

from podwire.cli.main import UserError
from podwire.cli.options import PREFIX, add_prefix
from podwire.cluster import tracing
from podwire.cluster.up import state, status_file
from podwire.cluster.up.layout import BadPrefix, Layout, layout_of
from podwire.cluster.up.node_building import reboot_node
from podwire.cluster.up.node_namespaces import NodeNamespaces, NotBuilt
from podwire.cluster.up.state import BrokenState, NodeRecord, State
from podwire.durable.records import NewerFormat
from podwire.linux import syscalls


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    executing = verbs.add_parser("exec", help="Run a program in the namespaces of a node")
    add_prefix(executing)
    executing.add_argument("node", metavar="NODE")
    executing.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM", help="program with arguments")
    rebooting = verbs.add_parser(
        "reboot", help="Kill all processes of a node, with its mounts, links and /run, and start it again"
    )
    add_prefix(rebooting)
    rebooting.add_argument("node", metavar="NODE")


def run(arguments: argparse.Namespace) -> int:
    return _reboot(arguments) if arguments.verb == "reboot" else _execute(arguments)


def _reboot(arguments: argparse.Namespace) -> int:
    try:
        layout = layout_of(arguments.prefix)
        known, node = _find(layout, arguments.node)
        if not node.own:
            raise UserError(f"{node.name} is the host itself; only nodes with their own namespaces can be rebooted")
        supervisor = status_file.read(layout)
        if supervisor is None or not status_file.is_alive(supervisor):
            raise UserError("the cluster is not up, so that nothing would start the node again; `podwire up` starts it")
        reboot_node(layout, known, node)
    except (BadPrefix, NewerFormat, BrokenState, NotBuilt, OSError) as error:
        raise UserError(str(error)) from error
    return 0


def _execute(arguments: argparse.Namespace) -> int:
    """Replaces a process on the node by the program; this process waits for it, and passes signals on."""
    program = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not program:
        raise UserError(f"name a program: `podwire node exec {arguments.node} -- ip link`")
    try:
        collector = _enter(arguments.prefix, arguments.node)
        os.environ.setdefault(tracing.VARIABLE, str(collector))
        os.environ.setdefault(tracing.NODE, arguments.node)
        os.environ[PREFIX] = "/"  # on a node, the paths of its cluster are the standard ones
        os.execvp(program[0], program)  # noqa: S606 - the user's own program, without a shell
    except FileNotFoundError as error:
        raise UserError(f"{program[0]}: not found on node {arguments.node}") from error
    except (BadPrefix, NewerFormat, BrokenState, OSError) as error:
        raise UserError(str(error)) from error


def _enter(prefix: Path, name: str) -> Path:
    """Enters the node; returns the socket of the trace collector as seen from there."""
    layout = layout_of(prefix)
    if not _find(layout, name)[1].own:
        return layout.trace_socket
    space = NodeNamespaces(layout, name)
    if not space.exists():
        raise UserError(f"the namespaces of {name} do not exist; `podwire up` creates them")
    child = space.fork()
    if child:
        _wait_for(child)
    syscalls.die_with_parent(signal.SIGKILL)
    space.enter()
    return Layout(Path("/")).trace_socket


def _find(layout: Layout, name: str) -> tuple[State, NodeRecord]:
    known = state.load(layout.record)
    if known is None:
        raise UserError(f"no cluster below {layout.prefix}; `podwire up` creates one")
    node = next((node for node in known.nodes if node.name == name), None)
    if node is None:
        raise UserError(f"no node {name}; the nodes are {', '.join(node.name for node in known.nodes)}")
    return known, node


_RELAYED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_OF_TERMINALS = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends them to both processes."""


def _wait_for(child: int) -> NoReturn:
    """Ends as the program on the node does."""
    for number in _RELAYED if os.isatty(0) else (*_RELAYED, *_OF_TERMINALS):
        signal.signal(number, lambda received, _frame: os.kill(child, received))
    for number in _OF_TERMINALS if os.isatty(0) else ():
        signal.signal(number, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
