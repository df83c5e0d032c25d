"""NamespaceLifecycle: nothing is created in a missing or terminating namespace; three namespaces cannot be deleted."""

from dataclasses import dataclass

from podwire.apiserver.admission.chain import Operation
from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, unpack
from podwire.protocols.k8sapi.status import ApiError, Reason, access_denied, named, not_found, qualified

UNDELETABLE = frozenset({"default", "kube-system", "kube-public"})


@dataclass(frozen=True, slots=True)
class NamespaceLifecycle:
    """Refuses writes that the namespace's state forbids."""

    store: Store

    async def admit(self, operation: Operation) -> None:
        if operation.verb == "DELETE":
            if operation.is_for("", "namespaces") and operation.name in UNDELETABLE:
                why = f'namespaces "{operation.name}" is forbidden: this namespace may not be deleted'
                raise access_denied(why, resource="namespaces", name=operation.name)
            return
        if operation.verb != "CREATE" or not operation.resource.kind.namespaced:
            return
        namespace = await self._namespace(operation.namespace)
        if namespace is None:
            raise not_found("namespaces", operation.namespace)
        if namespace["metadata"].get("deletionTimestamp"):
            raise _terminating(operation, namespace)

    async def undo(self, operation: Operation) -> None:
        """Takes nothing."""

    async def _namespace(self, name: str) -> Object | None:
        item = await self.store.get(f"{PREFIX}namespaces/{name}")
        return unpack(item) if item else None


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
