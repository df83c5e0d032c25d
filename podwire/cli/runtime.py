"""`podwire runtime`: runs pods and containers for CRI clients."""

import argparse
import asyncio
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_component_prefix, add_logging, run_until_stopped, seconds
from podwire.cluster import nri
from podwire.cluster.runtime import OCI_RUNTIMES, NoRuntime, Options, RunsAlready, running
from podwire.durable.records import NewerFormat
from podwire.protocols.settings import BadConfig
from podwire.runtime.cni import CheckSettings
from podwire.runtime.cni.check import ACTIONS, INTERVAL, REPORT
from podwire.transports.unix_sockets import CannotListen


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", type=Path, metavar="PATH", help="CRI socket (default: PREFIX/run/podwire/cri.sock)")
    add_component_prefix(parser)
    parser.add_argument(
        "--cni-conf-dir", type=Path, metavar="DIR", help="network configurations (default: PREFIX/etc/cni/net.d)"
    )
    parser.add_argument(
        "--cni-bin-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="CNI plugins; repeatable (default: PREFIX/opt/cni/bin)",
    )
    parser.add_argument("--oci-runtime", choices=OCI_RUNTIMES, help="OCI runtime (default: crun, else runc)")
    add_checking(parser)
    add_nri(parser)
    add_logging(parser)


def add_checking(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    parser.add_argument(
        "--cni-check-interval", type=seconds, default=INTERVAL, metavar="SECONDS",
        help=f"interval of CNI CHECK for each pod; 0 is never (default: {INTERVAL:g})",
    )  # fmt: skip
    parser.add_argument(
        "--cni-check-action", choices=ACTIONS, default=REPORT,
        help="what to do when CHECK fails: report it in status and events, or also restart the pod in a new sandbox "
        f"(default: {REPORT})",
    )  # fmt: skip


def add_nri(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-nri", action="store_true", help="disable NRI")
    parser.add_argument(
        "--nri-config", type=Path, metavar="FILE", help=f"NRI configuration (default: PREFIX/{nri.FILE})"
    )
    parser.add_argument("--nri-socket", type=Path, metavar="PATH", help="NRI socket (default: PREFIX/run/nri/nri.sock)")


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
    except (OSError, NewerFormat, NoRuntime, RunsAlready, CannotListen, BadConfig) as error:
        raise UserError(str(error)) from error


async def _serve(options: Options) -> None:
    async with running(options):
        await asyncio.Event().wait()
