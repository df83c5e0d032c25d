"""`podwire test run`: starts a cluster, runs a program that tests something on it, checks for leftovers, removes it."""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from podwire.cli.main import UserError
from podwire.linux.errors import LinuxError
from podwire.linux.proc.processes import reap, spawn
from podwire.testing.cluster import CommandFailed, TestCluster

EPILOG = """\
The program gets KUBECONFIG, PODWIRE_PREFIX (of all podwire commands), PODWIRE_CNI_BIN and PODWIRE_CNI_CONF (directories
of the node for CNI plugins and network configurations).
exit codes: that of the program; 1 if it succeeded and left something behind, 2 usage

examples:
  podwire test run -- go test ./e2e/...
  podwire test run --hardware sriov -- pytest tests/e2e
"""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    running = verbs.add_parser("run", help="Run a program with a cluster of its own")
    running.usage = (
        "podwire test run [-h] [--nodes N] [--hardware PROFILE] [--network-driver] [--keep] -- CMD [ARG ...]"
    )
    running.description = "Start a cluster, run a program that uses it, check for leftovers, and remove the cluster."
    running.epilog = EPILOG
    running.formatter_class = argparse.RawDescriptionHelpFormatter
    running.add_argument("--nodes", type=int, metavar="N", help="number of nodes (default: 1)")
    running.add_argument("--hardware", metavar="PROFILE", help="simulated hardware, as of `podwire up`")
    running.add_argument("--network-driver", action="store_true", help="run `podwire network-driver` on each node")
    running.add_argument("--keep", action="store_true", help="leave the cluster up")
    running.add_argument("program", nargs=argparse.REMAINDER, metavar="-- CMD", help="the program with its arguments")


def run(arguments: argparse.Namespace) -> int:
    program = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not program:
        print("podwire test run: no program given: add `-- CMD`", file=sys.stderr)
        return 2
    options = [*(("--nodes", str(arguments.nodes)) if arguments.nodes else ())]
    options += ["--hardware", arguments.hardware] if arguments.hardware else []
    options += ["--network-driver"] if arguments.network_driver else []
    directory = Path(tempfile.mkdtemp(prefix="pwt", dir="/tmp"))
    cluster = TestCluster(directory / "c", tuple(options))
    try:
        return _run(cluster, program, keep=arguments.keep)
    except CommandFailed as error:
        raise UserError(str(error).strip()) from error
    finally:
        if not arguments.keep:
            shutil.rmtree(directory, ignore_errors=True)


def _run(cluster: TestCluster, program: list[str], *, keep: bool) -> int:
    try:
        cluster.up()
        try:
            child = spawn(program, env={**os.environ, **cluster.environment}, files=(0, 1, 2), group=False)
        except LinuxError as error:
            raise UserError(str(error)) from error
        try:
            code = reap(child)
        finally:
            os.close(child.pidfd)
        left = cluster.leftovers()
        if left:
            print(f"podwire test run: left behind:\n{left}", end="", file=sys.stderr)
        return (128 - code if code < 0 else code) or int(bool(left))
    finally:
        if keep:
            print(f"podwire test run: the cluster is below {cluster.prefix}", file=sys.stderr)
        else:
            cluster.down()
