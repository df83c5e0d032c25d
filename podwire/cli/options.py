"""Flags that several commands share, and how a daemon's command runs."""

import argparse
import ipaddress
import math
import os
import platform
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TextIO

from podwire import logs
from podwire.cluster import daemons


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


def run_until_stopped(work: Coroutine[Any, Any, None], arguments: argparse.Namespace) -> int:
    """Run a daemon until it ends or a signal asks it to; a clean stop is exit code 0."""
    logs.set_up(level=arguments.log_level, form=arguments.log_format)
    daemons.run_until_stopped(work, (signal.SIGTERM, signal.SIGINT))
    return 0
