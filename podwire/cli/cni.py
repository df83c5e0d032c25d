"""`podwire cni`: our CNI plugins, for any runtime."""

import argparse
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_logging, run_until_stopped, settle
from podwire.cluster import cni_daemon
from podwire.cniplugins.install import SOCKET, Foreign, install
from podwire.transports.unix import CannotListen

DIRECTORY = Path("/opt/cni/bin")


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    installing = verbs.add_parser("install", help="put bridge, host-local, loopback and portmap into a directory")
    installing.add_argument("directory", type=Path, nargs="?", default=DIRECTORY, metavar="DIR")
    installing.add_argument("--force", action="store_true", help="also in place of programs that are not ours")
    installing.add_argument("--socket", type=Path, default=Path(SOCKET), help=f"where their daemon listens ({SOCKET})")
    serving = verbs.add_parser("daemon", help="do what they are asked, in a twentieth of the time")
    serving.add_argument("--socket", type=Path, help=f"where to listen (PREFIX{SOCKET})")
    serving.add_argument(
        "--prefix", type=Path, default=Path("/"), help="the directory below which everything is kept (/)"
    )
    add_logging(serving)


def run(arguments: argparse.Namespace) -> int:
    return {"install": _install, "daemon": _daemon}[arguments.verb](arguments)


def _install(arguments: argparse.Namespace) -> int:
    try:
        socket = str(arguments.socket.absolute())
        paths = install(str(arguments.directory), force=arguments.force, socket=socket)
    except Foreign as error:
        raise UserError(f"{error}: not ours, and --force is not given; nothing was changed") from error
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error
    for each in paths:
        print(each)
    return 0


def _daemon(arguments: argparse.Namespace) -> int:
    socket = arguments.socket or arguments.prefix / SOCKET.lstrip("/")
    try:
        return run_until_stopped(_serve(cni_daemon.Options(socket=socket)), arguments)
    except (OSError, CannotListen) as error:
        raise UserError(str(error)) from error


async def _serve(options: cni_daemon.Options) -> None:
    settle()
    await cni_daemon.run(options)
