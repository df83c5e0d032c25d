"""NamespaceLifecycle: nothing is created in a missing or terminating namespace; three namespaces cannot be deleted."""

from dataclasses import dataclass

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, unpack
from podwire.protocols.k8sapi.status import ApiError, Reason, access_denied, named, not_found, qualified

MOST_DECODED = 1000
"""Namespaces that are kept decoded."""
UNDELETABLE = frozenset({"default", "kube-system", "kube-public"})


class Namespaces:
    """Reads namespaces: always the stored version, decoded once per version."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._decoded: dict[str, tuple[int, Object]] = {}

    async def get(self, name: str) -> Object | None:
        """Returns a namespace, which the caller may not change; None when it does not exist."""
        item = await self._store.get(f"{PREFIX}namespaces/{name}")
        if item is None:
            self._decoded.pop(name, None)
            return None
        revision, namespace = self._decoded.get(name, (0, {}))
        if revision != item.revision:
            namespace = unpack(item)
            if len(self._decoded) >= MOST_DECODED:
                self._decoded.clear()
            self._decoded[name] = item.revision, namespace
        return namespace

    async def of(self, operation: Operation) -> Object | None:
        """Returns the namespace of an operation, read once per operation."""
        if operation.namespace_object is None and operation.namespace:
            operation.namespace_object = await self.get(operation.namespace)
        return operation.namespace_object


@dataclass(frozen=True, slots=True)
class NamespaceLifecycle(AdmissionPlugin):
    """Refuses writes that the namespace's state forbids."""

    namespaces: Namespaces

    verbs = frozenset({"CREATE", "DELETE"})

    async def admit(self, operation: Operation) -> None:
        if operation.verb == "DELETE":
            if operation.is_for("", "namespaces") and operation.name in UNDELETABLE:
                why = f'namespaces "{operation.name}" is forbidden: this namespace may not be deleted'
                raise access_denied(why, resource="namespaces", name=operation.name)
            return
        if not operation.resource.kind.namespaced:
            return
        namespace = operation.namespace_object = await self.namespaces.get(operation.namespace)
        if namespace is None:
            raise not_found("namespaces", operation.namespace)
        if namespace["metadata"].get("deletionTimestamp"):
            raise _terminating(operation, namespace)


def _terminating(operation: Operation, namespace: Object) -> ApiError:
    resource, name = operation.resource, namespace["metadata"]["name"]
    message = (
        f'{qualified(resource.name, resource.group)} "{operation.name}" is forbidden: '
        f"unable to create new content in namespace {name} because it is being terminated"
    )
    cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated",
             "field": "metadata.namespace"}  # fmt: skip
    details = {**named(resource.name, operation.name, resource.group), "causes": [cause]}
    return ApiError(Reason.FORBIDDEN, message, details=details)
