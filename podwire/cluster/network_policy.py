"""Enforces policies on a node of `podwire up`, inside the process of its CNI daemon, from the first policy on.

A cluster without policies has no plugin in the path of its pods: only a watch of each kind waits, NetworkPolicies and
those of the administrator. The first policy, be it there at the start or created later, starts the network plugin
(`nri_network.py`), which protects existing pods too and stays.
"""

import asyncio
import logging
from pathlib import Path

from podwire.nriplugins.network.kinds import ADMIN_KINDS, POLICIES
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added
from podwire.tasks.backoff import Pauses
from podwire.transports import credentials, http_client

_log = logging.getLogger("podwire.network-policy")

USER_AGENT = "podwire-network-policy"
NOT_FOUND = 404
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
    async with http_client.connect(access, user_agent=USER_AGENT) as http:
        client = Client(http)
        waits = [asyncio.create_task(_until_first(client, kind)) for kind in (POLICIES, *ADMIN_KINDS)]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def _until_first(client: Client, kind: Kind) -> None:
    """Returns when there is an object of a kind; its definition may be created later."""
    pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)
    while True:
        try:
            async with client.informer(kind) as informer:
                async for change in informer:
                    if isinstance(change, Added):
                        return
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
        await asyncio.sleep(pauses.next())


async def _run_plugin(node: str, kubeconfig: Path, nri_socket: Path) -> None:
    from podwire.cluster import nri_network  # noqa: PLC0415 - most clusters have no policy
    from podwire.nri.errors import NriError  # noqa: PLC0415 - the same

    _log.info("network policies are enforced from now on", extra={"node": node})
    try:
        await nri_network.run(nri_network.Options(node=node, kubeconfig=kubeconfig, socket=nri_socket))
    except* NriError as errors:
        raise OSError("; ".join(map(str, errors.exceptions))) from errors
