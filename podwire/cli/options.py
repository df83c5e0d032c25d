"""Flags that several commands share, and how a daemon's command runs."""

import argparse
import asyncio
import gc
import ipaddress
import math
import os
import platform
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TextIO

import uvloop

from podwire import logs


def add_logging(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("logs")
    group.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="text for people, json for machines"
    )
    group.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")


NODE_NAME = "NODE_NAME"


def add_node(parser: argparse.ArgumentParser) -> None:
    """Of whoever works on a node beside the kubelet, as a pod or not."""
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="the API server (that of the pod's own service account)"
    )
    parser.add_argument("--context", default="", metavar="NAME", help="the kubeconfig's context (its current one)")
    parser.add_argument(
        "--node-name",
        default=this_node(),
        metavar="NAME",
        help=f"as the API server knows this node (${NODE_NAME}, else the host's name)",
    )
    parser.add_argument(
        "--listen", type=address, metavar="ADDRESS:PORT", help="serve /metrics, /healthz and /readyz there (nowhere)"
    )


def this_node() -> str:
    return os.environ.get(NODE_NAME) or platform.node()


def address(text: str) -> tuple[str, int]:
    """HOST:PORT of a flag: an IP address (IPv6 in brackets) and a port, 0 for a free one."""
    host, separator, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    try:
        ipaddress.ip_address(host)
        number = int(port)
    except ValueError:
        separator = ""
    if not separator or not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no ADDRESS:PORT such as 127.0.0.1:6443 or [::1]:6443")
    return host, number


def seconds(text: str) -> float:
    """Of a flag: none or more, and not for ever."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return number


def say(text: str, file: TextIO | None = None) -> None:
    """Print, and go on when nobody reads any more, as behind `| head`."""
    try:
        print(text, file=file, flush=True)
    except BrokenPipeError:
        # Whatever comes later, also what Python writes when it ends, goes nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (file or sys.stdout).fileno())
        os.close(nowhere)


YOUNG = 5_000
"""So many objects more than at the last look, and the garbage collector looks at the new ones: 1 ms at most."""


def settle() -> None:
    """Told by a daemon that is up: what it has made so far stays, so nobody needs to look through it for garbage.

    That was most of the work of every full collection, in which all requests wait. Requests themselves leave next to
    no cycles behind, so looking less often costs nothing.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    gc.enable()


def run_until_stopped(work: Coroutine[Any, Any, None], arguments: argparse.Namespace) -> int:
    """Run a daemon until it ends or a signal asks it to; a clean stop is exit code 0."""
    logs.set_up(level=arguments.log_level, form=arguments.log_format)

    async def watched() -> None:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            return

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(watched())
    return 0
