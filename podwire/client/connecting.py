"""Finds the cluster of a program and connects to it."""

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from podwire.client.api import Api
from podwire.protocols.k8sapi.client_side.calls import Patience
from podwire.protocols.k8sapi.kubeconfig import SERVICE_ACCOUNT, Access, BadKubeconfig
from podwire.transports import credentials, http_client

UP = "/var/lib/podwire/kubeconfig"
"""The kubeconfig of `podwire up` without a prefix."""


@contextlib.asynccontextmanager
async def connect(
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    *,
    user_agent: str = "podwire.client",
    patience: Patience | None = None,
) -> AsyncIterator[Api]:
    """Yields the API of a cluster; `find_access` says of which. Nothing is sent before the first call.

    Raises BadKubeconfig, and NoCredentials (a ClientError) when the kubeconfig's credential plugin fails.
    """
    access = find_access(kubeconfig, context or "")
    async with http_client.opened(access, user_agent=user_agent) as http:
        # Here and not in the first call, which has a deadline: a plugin may ask a person to log in.
        await http.log_in()
        yield Api(http, access.namespace, patience)


def find_access(
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str = "",
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: str = SERVICE_ACCOUNT,
    up: str = UP,
) -> Access:
    """Returns the access of the kubeconfig that is given; else of KUBECONFIG (several files are merged) or
    ~/.kube/config; else of the pod that this process runs in; else of the cluster of `podwire up`.

    Raises BadKubeconfig.
    """
    if kubeconfig is not None:
        return credentials.load(kubeconfig, context=context)
    if files := credentials.usual_files(environ):
        return credentials.load_merged(files, context=context)
    if not context and credentials.is_in_cluster(environ, service_account):
        return credentials.in_cluster(environ, service_account)
    if Path(up).exists():
        return credentials.load(up, context=context)
    tried = environ.get("KUBECONFIG") or "~/.kube/config"
    raise BadKubeconfig(tried, "", f"does not exist, this is not a pod with a service account, and {up} does not exist")
