"""`podwire ui`: serves the live page of a cluster."""

import argparse
import asyncio
import contextlib
import signal
import tempfile
import webbrowser
from pathlib import Path

from podwire import logs
from podwire.cli.main import UserError
from podwire.cli.options import add_prefix, write_line
from podwire.cluster.daemons import run_until_stopped
from podwire.cluster.tracing import CollectorOptions
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.transports import credentials
from podwire.web.server import Options, serving

UNSEEN = (
    "Starts are made of what the watch of the API server tells while a page is open: a pod is created, bound, changed.",
    "Calls between other programs are not seen: kubectl, scheduler, kubelet, container runtime, CNI plugins, etcd.",
    "Runtime, kubelet and NRI plugin of podwire appear if their PODWIRE_TRACE is trace.sock of --node-sockets.",
    "Links, routes and rules of nodes, and address pools, are read only of a cluster of `podwire up` here.",
)
"""Facts about a cluster of other programs that a page cannot show."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_prefix(parser)
    parser.add_argument(
        "--port", type=_port, default=0, metavar="PORT", help="port on the loopback (default: a free one)"
    )
    parser.add_argument(
        "--allow-actions", action="store_true", help="let the page change things: retry a pod (default: read-only)"
    )
    outside = parser.add_argument_group("a cluster of other programs, seen from outside")
    outside.add_argument("--kubeconfig", type=Path, metavar="FILE", help="kubeconfig of the cluster")
    outside.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )
    outside.add_argument(
        "--node-sockets",
        type=Path,
        metavar="DIR",
        help="directory for records and for the socket trace.sock, to which components of podwire on this machine send "
        "their calls with PODWIRE_TRACE=DIR/trace.sock (default: a temporary directory)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def run(arguments: argparse.Namespace) -> int:
    logs.set_up(level="warning")
    if arguments.kubeconfig is None and (arguments.context or arguments.node_sockets):
        raise UserError("--context and --node-sockets need --kubeconfig")
    with contextlib.ExitStack() as stack:
        try:
            options = _outside(arguments, stack) if arguments.kubeconfig else _options(arguments)
            run_until_stopped(_serve(options, open_=arguments.open), (signal.SIGTERM, signal.SIGINT))
        except (BadPrefix, BadKubeconfig, OSError) as error:
            raise UserError(str(error)) from error
    return 0


def _outside(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> Options:
    """Raises BadKubeconfig, OSError."""
    access = credentials.load(arguments.kubeconfig, context=arguments.context)
    directory = arguments.node_sockets
    if directory is None:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podwire-ui-")))
    collector = CollectorOptions(socket=directory / "trace.sock", directory=directory / "records")
    return Options(
        access=access,
        traces=collector.directory,
        port=arguments.port,
        cluster=f"{access.server}, seen from outside",
        allow_actions=arguments.allow_actions,
        unseen=UNSEEN,
        collector=collector,
    )


def _options(arguments: argparse.Namespace) -> Options:
    """Raises BadPrefix, BadKubeconfig, OSError."""
    layout = layout_of(arguments.prefix)
    if not layout.kubeconfig.exists():
        raise UserError(f"no cluster below {layout.prefix}; `podwire up` creates one")
    return Options(
        access=credentials.load(layout.kubeconfig),
        traces=CollectorOptions.below(layout.prefix).directory,
        port=arguments.port,
        layout=layout,
        cluster=f"cluster below {layout.prefix}",
        allow_actions=arguments.allow_actions,
    )


async def _serve(options: Options, *, open_: bool) -> None:
    async with serving(options) as served:
        write_line(served.link)
        if open_:
            await asyncio.to_thread(webbrowser.open, served.link)
        await asyncio.Event().wait()


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)
