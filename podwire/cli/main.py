"""`podwire`: parses the command line and calls the module of the command.

A command is imported when it is used, so that `--help` and small commands start fast.
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
from typing import Any

from podwire import __version__


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its module has `configure(parser)` and `run(arguments) -> exit code`."""

    name: str
    module: str
    summary: str


GROUPS = {
    "clusters": (
        Command("up", "podwire.cli.up", "Start a cluster on this machine"),
        Command("down", "podwire.cli.down", "Remove a cluster with its pods and everything it created"),
        Command("status", "podwire.cli.status", "Show the processes, nodes and addresses of a cluster"),
        Command("kubeconfig", "podwire.cli.kubeconfig", "Print the path of a cluster's kubeconfig"),
        Command("node", "podwire.cli.node", "Run a program on a node, with its paths and links"),
        Command("hardware", "podwire.cli.hardware", "Show hardware profiles; plug and unplug simulated cards"),
        Command("demo", "podwire.cli.demo", "Start a cluster, run pods, draw their traces, remove it"),
    ),
    "diagnostics": (
        Command("trace", "podwire.cli.trace", "Draw the start of a pod as a sequence diagram"),
        Command("doctor", "podwire.cli.doctor", "Check what this machine lacks, and what would help"),
        Command("leakcheck", "podwire.cli.leakcheck", "List leftovers: resources that no pod uses any more"),
        Command("policy", "podwire.cli.policy", "Explain which NetworkPolicy allows or denies a connection"),
        Command("service", "podwire.cli.service", "Explain the way of a packet to a Service, rule by rule"),
        Command("retry", "podwire.cli.retry", "Retry now whatever a pod is waiting for"),
        Command("chaos", "podwire.cli.chaos", "Inject random faults into a cluster and check what must hold"),
        Command("failpoints", "podwire.cli.failpoints", "List the failpoints for fault injection in tests"),
    ),
    "components, each usable alone with any Kubernetes": (
        Command("apiserver", "podwire.cli.apiserver", "Serve the Kubernetes API from SQLite, etcd or memory"),
        Command("controllers", "podwire.cli.controllers", "Run the controllers: workloads, owners, nodes, …"),
        Command("scheduler", "podwire.cli.scheduler", "Bind pods to nodes"),
        Command("dns", "podwire.cli.dns", "Resolve names of Services and pods, and forward others"),
        Command("kubelet", "podwire.cli.kubelet", "Run the pods of this node on any CRI runtime"),
        Command("runtime", "podwire.cli.runtime", "Run pod sandboxes and containers for CRI clients"),
        Command("proxy", "podwire.cli.proxy", "Send packets to Services on to their endpoints"),
        Command("image", "podwire.cli.image", "Import, build, list and remove images, without a registry"),
        Command("cni", "podwire.cli.cni", "Install CNI plugins, run their daemon, call them by hand"),
        Command("nri", "podwire.cli.nri", "Write, test and observe NRI plugins"),
        Command("nri-network", "podwire.cli.nri_network", "Apply policies and routes to pods, as an NRI plugin"),
        Command("device-plugin", "podwire.cli.device_plugin", "Offer network devices to a kubelet"),
        Command("network-driver", "podwire.cli.network_driver", "Publish interfaces as DRA devices, and attach them"),
        Command("manifests", "podwire.cli.manifests", "Print manifests that install a component on any cluster"),
    ),
}

_CA_FILE = "SSL_CERT_FILE"
"""The environment variable of OpenSSL for the file with the system's CAs."""

COMMANDS = tuple(command for group in GROUPS.values() for command in group)

DESCRIPTION = "A small, complete Kubernetes for one machine, with one command per component."

EPILOG = """\
exit codes: 0 ok, 1 failed, 2 usage

try:
  podwire demo                                     see it work
  podwire up --detach                              start a cluster
  podwire down                                     remove it again
  podwire apiserver --data-dir /srv/pw --listen 127.0.0.1:6443
  kubectl --kubeconfig /srv/pw/kubeconfig get namespaces
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    gc.disable()  # start-up makes little garbage, and collecting takes a tenth of its time; daemons enable it when up
    try:
        return _run_and_flush(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        if (code := _code_of_write_error(error)) is None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter writes again at exit
        return code
    finally:
        gc.enable()


def _run_and_flush(given: Sequence[str]) -> int:
    """Runs a command; its output is flushed when it returns, however it ends."""
    try:
        return _run(given)
    finally:
        if sys.stdout is not None:  # None if it was closed before the start
            sys.stdout.flush()


def _code_of_write_error(error: OSError) -> int | None:
    """Returns the exit code when the output is closed or the disk is full; None for another error."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        print(f"podwire: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        return 1
    return 128 + signal.SIGPIPE if error.errno == errno.EPIPE and _output_is_closed() else None


def _output_is_closed() -> bool:
    """Whether the output is a pipe without a reader, as after `| head`."""
    output = select.poll()
    output.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _run(given: Sequence[str]) -> int:
    parser, parsed = _parse(given)
    if parsed.command is None:
        parser.print_help()
        return 2
    module = _load(next(command.module for command in COMMANDS if command.name == parsed.command))
    try:
        code: int = module.run(parsed)
    except UserError as error:
        print(f"podwire {parsed.command}: {error}", file=sys.stderr)
        return 1
    return code


def _load(module: str) -> Any:
    """Imports the module of a command, without the CAs of the system.

    aiohttp reads them when it is imported, which takes a tenth of the start of a cluster, and memory of every
    component. Our clients use contexts of their own, with the CAs of a cluster or, where they need them, the system's.
    """
    before = os.environ.get(_CA_FILE)
    os.environ[_CA_FILE] = os.devnull
    try:
        return importlib.import_module(module)
    finally:
        del os.environ[_CA_FILE]
        if before is not None:
            os.environ[_CA_FILE] = before


class UserError(Exception):
    """An error that the user can fix; printed in one line, without a traceback."""


def _page() -> str:
    """Returns the text before the options; argparse would wrap these lines."""
    width = max(len(command.name) for command in COMMANDS)
    lines = [DESCRIPTION]
    for title, group in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {command.name:{width}}  {command.summary}" for command in group)]
    return "\n".join(lines)


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
    name = next((word for word in given if not word.startswith("-")), "")
    for command in COMMANDS:
        below = commands.add_parser(command.name, help=command.summary, description=command.summary)
        if command.name == name:
            _load(command.module).configure(below)
    return parser, parser.parse_args(given)


if __name__ == "__main__":
    # By its module name: commands raise UserError of that module, not of __main__.
    sys.exit(importlib.import_module("podwire.cli.main").main())
