"""Publishes, at the start of a cluster that has an address for other machines, what they need to join it."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from podwire.cluster.join import permissions
from podwire.cluster.join.permissions import NODES
from podwire.cluster.join.settings import ClusterSettings
from podwire.protocols.k8sapi.client_side import Client
from podwire.transports import credentials, http_client

USER_AGENT = "podwire-up"


async def publish(kubeconfig: Path, server: str, settings: ClusterSettings) -> None:
    """Creates rights, `cluster-info` and settings. Raises ApiError, BadKubeconfig."""
    access = credentials.load(kubeconfig)
    ca = credentials.pem_text(access.ca, "certificate-authority")
    async with http_client.connect(access, user_agent=USER_AGENT) as http:
        await permissions.ensure(Client(http), server, ca, settings)


async def annotate(kubeconfig: Path, names: Iterable[str], notes: Mapping[str, str]) -> None:
    """Annotates Nodes. Raises ApiError, BadKubeconfig."""
    async with http_client.connect(credentials.load(kubeconfig), user_agent=USER_AGENT) as http:
        api = Client(http)
        for name in names:
            await api.patch(NODES, name, {"metadata": {"annotations": dict(notes)}})
