"""`podwire runtime`: run pods and containers for whoever speaks CRI."""

import argparse
import asyncio
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_logging, run_until_stopped
from podwire.cluster.runtime import OCI_RUNTIMES, NoRuntime, Options, RunsAlready, running
from podwire.runtime.records import NewerRecord
from podwire.transports.unix import CannotListen


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", type=Path, help="where to listen (PREFIX/run/podwire/cri.sock)")
    parser.add_argument(
        "--prefix", type=Path, default=Path("/"), help="the directory below which everything is kept (/)"
    )
    parser.add_argument("--cni-conf-dir", type=Path, help="network configurations (PREFIX/etc/cni/net.d)")
    parser.add_argument(
        "--cni-bin-dir", type=Path, action="append", default=[], help="plugins; may be given again (PREFIX/opt/cni/bin)"
    )
    parser.add_argument("--oci-runtime", choices=OCI_RUNTIMES, help="what runs the containers (crun, else runc)")
    add_logging(parser)


def run(arguments: argparse.Namespace) -> int:
    options = Options(
        socket=arguments.socket or arguments.prefix / "run/podwire/cri.sock",
        prefix=arguments.prefix,
        cni_conf_dir=arguments.cni_conf_dir,
        cni_bin_dirs=tuple(arguments.cni_bin_dir),
        oci_runtimes=(arguments.oci_runtime,) if arguments.oci_runtime else OCI_RUNTIMES,
    )
    try:
        return run_until_stopped(_serve(options), arguments)
    except (OSError, NewerRecord, NoRuntime, RunsAlready, CannotListen) as error:
        raise UserError(str(error)) from error


async def _serve(options: Options) -> None:
    async with running(options):
        await asyncio.Event().wait()
