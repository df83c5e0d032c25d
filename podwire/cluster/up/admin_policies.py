"""The definitions of AdminNetworkPolicy and BaselineAdminNetworkPolicy in a cluster that enforces policies."""

from pathlib import Path

from podwire.nriplugins.network import admin_crds
from podwire.nriplugins.network.kinds import DEFINITIONS
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials, http_client

NOT_FOUND, CONFLICT = 404, 409


async def create_definitions(kubeconfig: Path) -> None:
    """Creates those that are missing; existing ones, such as upstream's, are left as they are. Raises ApiError."""
    async with http_client.connect(credentials.load(kubeconfig), user_agent="podwire-up") as http:
        api = Client(http)
        for definition in admin_crds.ALL:
            try:
                await api.get(DEFINITIONS, definition["metadata"]["name"])
            except ApiError as missing:
                if missing.code != NOT_FOUND:
                    raise
                try:
                    await api.create(definition)
                except ApiError as error:
                    if error.code != CONFLICT:
                        raise
