"""`podwire retry`: retries now whatever a pod is waiting for."""

import argparse
import asyncio
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_prefix
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.inspect.retry import Options, retry
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="[NAMESPACE/]POD", help="pod whose back-offs end")
    parser.add_argument("-n", "--namespace", default="default", help="namespace of POD (default: %(default)s)")
    add_prefix(parser)
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig of another cluster that runs podwire's kubelet"
    )


def run(arguments: argparse.Namespace) -> int:
    namespace, _, name = arguments.pod.rpartition("/")
    try:
        kubeconfig = arguments.kubeconfig or layout_of(arguments.prefix).kubeconfig
        options = Options(kubeconfig=kubeconfig, namespace=namespace or arguments.namespace, name=name)
        asyncio.run(retry(options))
    except ApiError as error:
        raise UserError(error.message) from error
    except (OSError, BadPrefix, BadKubeconfig, ClientError) as error:
        raise UserError(str(error)) from error
    print(f"retrying pod {options.namespace}/{options.name}")
    return 0
