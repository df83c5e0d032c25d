"""`podwire`: reads the command line and hands over to one file per command.

Commands are imported when they are asked for, so that `--help` and small ones start fast.
"""

import argparse
import errno
import gc
import importlib
import os
import select
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from podwire import __version__


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its module has `configure(parser)` and `run(arguments) -> exit code`."""

    name: str
    module: str
    summary: str


COMMANDS = (
    Command("up", "podwire.cli.up", "bring a whole cluster up on this machine"),
    Command("down", "podwire.cli.down", "remove a cluster, with its pods and all that it made"),
    Command("status", "podwire.cli.status", "how a cluster is: its processes, its node, its addresses"),
    Command("kubeconfig", "podwire.cli.kubeconfig", "print where a cluster's kubeconfig is"),
    Command("node", "podwire.cli.node", "run a program on a node, among its standard paths and links"),
    Command("hardware", "podwire.cli.hardware", "cards and GPUs that nobody has: profiles, cables"),
    Command("doctor", "podwire.cli.doctor", "what this machine lacks, and what helps"),
    Command("demo", "podwire.cli.demo", "bring a cluster up, run pods, draw their way, leave no trace"),
    Command("apiserver", "podwire.cli.apiserver", "serve the Kubernetes API over SQLite, etcd or memory"),
    Command("controllers", "podwire.cli.controllers", "namespaces, accounts, owners: what follows from objects"),
    Command("scheduler", "podwire.cli.scheduler", "find a node for every pod that has none, and bind it"),
    Command("kubelet", "podwire.cli.kubelet", "run the pods that are bound to this node, on any CRI runtime"),
    Command("image", "podwire.cli.image", "images without a registry: import, build, list, remove"),
    Command("runtime", "podwire.cli.runtime", "run pod sandboxes and containers for whoever speaks CRI"),
    Command("cni", "podwire.cli.cni", "CNI plugins for any runtime: put them into a directory"),
    Command("nri", "podwire.cli.nri", "plugins of NRI, and tools for who writes them"),
    Command("nri-network", "podwire.cli.nri_network", "policies, routes and mesh of a node's pods, as an NRI plugin"),
    Command("policy", "podwire.cli.policy", "which NetworkPolicy lets a packet through, or does not"),
    Command("manifests", "podwire.cli.manifests", "print what puts a part of podwire onto any cluster"),
    Command("device-plugin", "podwire.cli.device_plugin", "offer a node's network devices to its kubelet"),
    Command("network-driver", "podwire.cli.network_driver", "offer a node's interfaces to claims, and attach them"),
    Command("trace", "podwire.cli.trace", "draw the way of a pod as it went, arrow by arrow"),
    Command("retry", "podwire.cli.retry", "have what a pod waits for tried again, now"),
    Command("leakcheck", "podwire.cli.leakcheck", "list what podwire made on this host and no pod explains"),
    Command("failpoints", "podwire.cli.failpoints", "list the places where a test can make podwire fail"),
)

DESCRIPTION = "The whole way of a Kubernetes pod onto its network, one command per participant."

EPILOG = """\
exit codes: 0 ok, 1 failed, 2 usage

try:
  podwire demo                                     see it work
  podwire up --detach                              a cluster; `down` removes it
  podwire apiserver --data-dir /tmp/pw --listen 127.0.0.1:6443
  kubectl --kubeconfig /tmp/pw/kubeconfig get namespaces
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is for the shell."""
    gc.disable()  # starting makes little garbage, and looking for it is a tenth of the time; daemons enable it when up
    try:
        return _heard(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        if (code := _unwritten(error)) is None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter tries once more
        return code
    finally:
        gc.enable()


def _heard(given: Sequence[str]) -> int:
    """Run it; all that it says is written when it returns, whatever way it ends."""
    try:
        return _run(given)
    finally:
        if sys.stdout is not None:  # else it was closed before we began
            sys.stdout.flush()


def _unwritten(error: OSError) -> int | None:
    """The exit code when there is nobody to talk to any more, or no room; None for another error."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        print(f"podwire: {error.filename or 'what was to be written'}: {error.strerror}", file=sys.stderr)
        return 1
    return 128 + signal.SIGPIPE if error.errno == errno.EPIPE and _nobody_listens() else None


def _nobody_listens() -> bool:
    """Whether the output goes into a pipe that has no other end any more, as `| head` leaves it."""
    output = select.poll()
    output.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _run(given: Sequence[str]) -> int:
    parser, parsed = _parse(given)
    if parsed.command is None:
        parser.print_help()
        return 2
    module = importlib.import_module(next(command.module for command in COMMANDS if command.name == parsed.command))
    try:
        code: int = module.run(parsed)
    except UserError as error:
        print(f"podwire {parsed.command}: {error}", file=sys.stderr)
        return 1
    return code


class UserError(Exception):
    """Something that the user can mend; told in one line, without a traceback."""


def _page() -> str:
    """What the help says first; argparse would break these lines."""
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"  {command.name:{width}}  {command.summary}" for command in COMMANDS]
    return "\n".join([DESCRIPTION, "", "commands:", *lines])


def _parse(given: Sequence[str]) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(
        prog="podwire",
        usage="podwire [-h] [--version] COMMAND ...",
        description=_page(),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"podwire {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog="podwire", help=argparse.SUPPRESS)
    wanted = next((word for word in given if not word.startswith("-")), "")
    for command in COMMANDS:
        below = commands.add_parser(command.name, help=command.summary, description=command.summary)
        if command.name == wanted:
            importlib.import_module(command.module).configure(below)
    return parser, parser.parse_args(given)


if __name__ == "__main__":
    # By its own name: commands raise the UserError of that module, not of the one that was run.
    sys.exit(importlib.import_module("podwire.cli.main").main())
