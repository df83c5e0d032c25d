"""Creates the service account `default` and the ConfigMap `kube-root-ca.crt` in every active namespace.

Two controllers, as upstream: serviceaccount-controller and root-ca-certificate-publisher-controller.
"""

from collections.abc import Callable

from podwire.controllers.context import Context
from podwire.controllers.kinds import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.work_queue import WorkQueue
from podwire.protocols.k8sapi.kinds import Kind
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


class NamespaceDefault:
    """Creates one object in every namespace that is not being deleted, and restores it."""

    def __init__(self, context: Context, queue: str, kind: Kind, wanted: Callable[[str], Object]) -> None:
        """`wanted` returns the object of a namespace."""
        self.resources = frozenset(map(resource_of, (NAMESPACES, kind)))
        self._api = context.api
        self._graph = context.graph
        self._kind = kind
        self._wanted = wanted
        self._name: str = wanted("")["metadata"]["name"]
        self._queue: WorkQueue[str] = WorkQueue(queue, self._reconcile)
        self._active: set[str] = set()

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(NAMESPACES):
            active = now is not None and not now.deleting
            (self._active.add if active else self._active.discard)(latest.name)
        if self._graph.complete and (namespace := self._concerned(latest)):
            self._queue.add(namespace)

    def _concerned(self, seen: PartialObject) -> str:
        """Returns the namespace to reconcile when this object changes; '' for none."""
        if seen.resource == resource_of(NAMESPACES):
            return seen.name
        return seen.namespace if seen.name == self._name else ""

    def on_synced(self) -> None:
        for namespace in self._active:
            self._queue.add(namespace)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._queue.run()

    async def _reconcile(self, namespace: str) -> None:
        if namespace not in self._active:
            return
        try:
            await self._ensure(self._wanted(namespace))
        except ApiError as error:
            if namespace in self._active and not _namespace_gone(error):
                raise

    async def _ensure(self, wanted: Object) -> None:
        """Creates an object, or restores its data; other fields stay."""
        try:
            found = await self._api.get(self._kind, self._name, wanted["metadata"]["namespace"])
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


def default_accounts(context: Context) -> NamespaceDefault:
    """serviceaccount-controller."""
    return NamespaceDefault(context, "accounts", SERVICE_ACCOUNTS, account)


def root_certificates(context: Context) -> NamespaceDefault:
    """root-ca-certificate-publisher-controller."""
    return NamespaceDefault(
        context, "root-certificates", CONFIG_MAPS, lambda namespace: root_ca(namespace, context.root_ca)
    )


def _namespace_gone(error: ApiError) -> bool:
    """Returns whether the namespace is deleted or terminating, although we have not been notified yet."""
    return error.code in (403, 404)
