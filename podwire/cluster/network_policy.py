"""Enforces NetworkPolicies on a node of `podwire up`, inside the process of its CNI daemon, from the first policy on.

A cluster without policies has no plugin in the path of its pods: only one watch waits. The first policy, be it there at
the start or created later, starts the network plugin (`nri_network.py`), which protects existing pods too and stays.
"""

import asyncio
import logging
from pathlib import Path

from podwire.nriplugins.network.kinds import POLICIES
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added
from podwire.tasks.backoff import Pauses
from podwire.transports import credentials, http_client

_log = logging.getLogger("podwire.network-policy")

USER_AGENT = "podwire-network-policy"
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between attempts; at the start of a cluster, the API server writes the kubeconfig a moment later."""


async def enforce(node: str, kubeconfig: Path, nri_socket: Path) -> None:
    """Works until cancelled; what fails is tried again."""
    pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)
    while True:
        try:
            await _until_first_policy(kubeconfig)
            pauses.reset()
            await _run_plugin(node, kubeconfig, nri_socket)
        except* (OSError, ApiError, BadKubeconfig) as errors:
            error = "; ".join(map(str, errors.exceptions))
            _log.info("cannot enforce network policies yet, retrying", extra={"error": error})
        await asyncio.sleep(pauses.next())


async def _until_first_policy(kubeconfig: Path) -> None:
    access = credentials.load(kubeconfig)
    async with (
        http_client.connect(access, user_agent=USER_AGENT) as http,
        Client(http).informer(POLICIES) as informer,
    ):
        async for change in informer:
            if isinstance(change, Added):
                return


async def _run_plugin(node: str, kubeconfig: Path, nri_socket: Path) -> None:
    from podwire.cluster import nri_network  # noqa: PLC0415 - most clusters have no policy
    from podwire.nri.errors import NriError  # noqa: PLC0415 - the same

    _log.info("network policies are enforced from now on", extra={"node": node})
    try:
        await nri_network.run(nri_network.Options(node=node, kubeconfig=kubeconfig, socket=nri_socket))
    except* NriError as errors:
        raise OSError("; ".join(map(str, errors.exceptions))) from errors
