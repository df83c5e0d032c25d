"""`podwire scheduler`: binds pods to nodes, with any API server."""

import argparse
from dataclasses import replace
from pathlib import Path

from podwire.cli.endpoint_options import add_endpoint, endpoint_of
from podwire.cli.main import UserError
from podwire.cli.options import add_leader_election, add_logging, first_error, run_until_stopped
from podwire.cluster.daemons import tune_memory
from podwire.cluster.scheduler import Options, read_configuration
from podwire.cluster.scheduler import run as schedule
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        required=True,
        metavar="FILE",
        help="kubeconfig of an identity that may list nodes, bind pods, and write their status and events",
    )
    parser.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="KubeSchedulerConfiguration: profiles by schedulerName (default: one, default-scheduler)",
    )
    add_leader_election(parser, "schedule", "kube-scheduler")
    add_endpoint(parser, 10259)
    add_logging(parser)


def run(arguments: argparse.Namespace) -> int:
    options = Options(
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
        endpoint=endpoint_of(arguments),
        leader_elect=arguments.leader_elect == "true",
    )
    try:  # bad credentials and settings are reported before anything runs
        credentials.ssl_context(credentials.load(options.kubeconfig, context=options.context))
    except (BadKubeconfig, OSError) as error:
        raise UserError(str(error)) from error
    if arguments.config is not None:
        try:
            options = replace(options, configuration=read_configuration(arguments.config))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"{arguments.config}: {why}") from error
    return run_until_stopped(_work(options), arguments)


async def _work(options: Options) -> None:
    tune_memory()
    try:
        await schedule(options)
    except ApiError as error:
        raise UserError(f"cannot watch this API server: {error}") from error
    except ExceptionGroup as failures:
        refusals, others = failures.split(ApiError)
        if refusals is None or others is not None:
            raise
        raise UserError(f"cannot watch this API server: {first_error(refusals)}") from failures
