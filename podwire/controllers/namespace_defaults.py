"""What every active namespace has: the service account `default` and the cluster's CA in `kube-root-ca.crt`."""

from podwire.controllers.graph import Graph
from podwire.controllers.kinds import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from podwire.controllers.metadata import Seen, resource_of
from podwire.controllers.ports import Api
from podwire.controllers.work_queue import WorkQueue
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Object

ACCOUNT, CONFIG_MAP, KEY = "default", "kube-root-ca.crt", "ca.crt"

_DESCRIPTION = {
    "kubernetes.io/description": "The certificate of the authority that signs this cluster's API server certificate."
}


def account(namespace: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}}


def root_ca(namespace: str, pem: str) -> Object:
    metadata = {"name": CONFIG_MAP, "namespace": namespace, "annotations": _DESCRIPTION}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: pem}}


def concerns(seen: Seen) -> str:
    """The namespace that has to be looked at when this object changes; '' for none."""
    if seen.resource == resource_of(NAMESPACES):
        return seen.name
    kept = {(resource_of(SERVICE_ACCOUNTS), ACCOUNT), (resource_of(CONFIG_MAPS), CONFIG_MAP)}
    return seen.namespace if (seen.resource, seen.name) in kept else ""


class NamespaceDefaults:
    """Puts both into every namespace that is not being deleted, and puts them back."""

    def __init__(self, api: Api, graph: Graph, pem: str) -> None:
        self._api = api
        self._graph = graph
        self._pem = pem
        self._queue: WorkQueue[str] = WorkQueue("accounts", self._attend)
        self._active: set[str] = set()

    def saw(self, before: Seen | None, now: Seen | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(NAMESPACES):
            active = now is not None and not now.deleting
            (self._active.add if active else self._active.discard)(latest.name)
        if self._graph.complete and (namespace := concerns(latest)):
            self._queue.add(namespace)

    def completed(self) -> None:
        for each in self._active:
            self._queue.add(each)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    async def _attend(self, namespace: str) -> None:
        if namespace not in self._active:
            return
        try:
            await self._have(account(namespace))
            await self._have(root_ca(namespace, self._pem))
        except ApiError as error:
            if namespace in self._active and not _too_late(error):
                raise

    async def _have(self, wanted: Object) -> None:
        """Create it, or bring its data back to what it should be; whatever else was added to it stays."""
        kind = SERVICE_ACCOUNTS if wanted["kind"] == "ServiceAccount" else CONFIG_MAPS
        name, namespace = wanted["metadata"]["name"], wanted["metadata"]["namespace"]
        try:
            found = await self._api.get(kind, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            await self._create(wanted)
            return
        if found.get("data") != wanted.get("data"):
            await self._api.replace({**found, "data": wanted["data"]})

    async def _create(self, wanted: Object) -> None:
        try:
            await self._api.create(wanted)
        except ApiError as error:
            if error.reason is not Reason.ALREADY_EXISTS:
                raise


def _too_late(error: ApiError) -> bool:
    """The namespace is gone or going, though we have not heard of it yet."""
    return error.code in (403, 404)
