"""`podwire runtime`: run pods and containers for whoever speaks CRI."""

import argparse
import asyncio
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_logging, run_until_stopped, seconds
from podwire.cluster import nri
from podwire.cluster.runtime import OCI_RUNTIMES, NoRuntime, Options, RunsAlready, running
from podwire.nri.adaptation.configuration import BadConfiguration
from podwire.runtime.cni import CheckSettings
from podwire.runtime.cni.check import ACTIONS, INTERVAL, REPORT
from podwire.runtime.records import NewerRecord
from podwire.transports.unix_sockets import CannotListen


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
    add_checking(parser)
    add_nri(parser)
    add_logging(parser)


def add_checking(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cni-check-interval", type=seconds, default=INTERVAL, metavar="SECONDS",
        help=f"how often CNI plugins are asked to CHECK each pod's network; 0 is never ({INTERVAL:g})",
    )  # fmt: skip
    parser.add_argument(
        "--cni-check-action", choices=ACTIONS, default=REPORT,
        help="what is done when a pod's network is not as it was made: report it in the pod's status and events, or "
        f"also restart the pod in a new sandbox ({REPORT})",
    )  # fmt: skip


def add_nri(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-nri", action="store_true", help="let no NRI plugin in, and start none")
    parser.add_argument("--nri-config", type=Path, help=f"what is decided about NRI plugins (PREFIX/{nri.FILE})")
    parser.add_argument("--nri-socket", type=Path, help="where NRI plugins connect (PREFIX/run/nri/nri.sock)")


def nri_options(arguments: argparse.Namespace) -> nri.Options:
    return nri.Options(disable=arguments.no_nri, config=arguments.nri_config, socket=arguments.nri_socket)


def checking(arguments: argparse.Namespace) -> CheckSettings:
    return CheckSettings(arguments.cni_check_interval, arguments.cni_check_action)


def run(arguments: argparse.Namespace) -> int:
    options = Options(
        socket=arguments.socket or arguments.prefix / "run/podwire/cri.sock",
        prefix=arguments.prefix,
        cni_conf_dir=arguments.cni_conf_dir,
        cni_bin_dirs=tuple(arguments.cni_bin_dir),
        oci_runtimes=(arguments.oci_runtime,) if arguments.oci_runtime else OCI_RUNTIMES,
        cni_checking=checking(arguments),
        nri=nri_options(arguments),
    )
    try:
        return run_until_stopped(_serve(options), arguments)
    except (OSError, NewerRecord, NoRuntime, RunsAlready, CannotListen, BadConfiguration) as error:
        raise UserError(str(error)) from error


async def _serve(options: Options) -> None:
    async with running(options):
        await asyncio.Event().wait()
