"""Pod defaults: a service account with its token volume, a priority, tolerations for failing nodes."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from podwire.apiserver.admission.chain import Operation
from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, unpack
from podwire.objects.names import generate_name
from podwire.protocols.k8sapi.status import ApiError, access_denied

TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105  a path, no secret
TOKEN_VOLUME = "kube-api-access-"  # noqa: S105  a name, no secret
TOKEN_SECONDS = 3607
ROOT_CA = "kube-root-ca.crt"
MIRROR = "kubernetes.io/config.mirror"

TOLERATION_SECONDS = 300
_RANDOM = random.Random()

FAILURE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

SYSTEM_PRIORITIES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}


@dataclass(frozen=True, slots=True)
class ServiceAccounts:
    """Sets a pod's service account and mounts the account's token, root certificate and namespace."""

    store: Store
    wait: float
    """Seconds to wait for the default account of a new namespace, which a controller creates."""

    async def admit(self, operation: Operation) -> None:
        if operation.verb != "CREATE" or not operation.is_for("", "pods"):
            return
        spec = operation.obj["spec"]
        if MIRROR in operation.obj["metadata"].get("annotations", {}):
            if spec.get("serviceAccountName"):
                raise _refused(operation, "a mirror pod may not reference service accounts")
            return
        name = spec.get("serviceAccountName") or "default"
        account = await self._account(operation.namespace, name)
        if account is None:
            where = f"{operation.namespace}/{name}"
            raise _refused(operation, f'error looking up service account {where}: serviceaccount "{name}" not found')
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        if "imagePullSecrets" not in spec and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        if spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True)):
            mount_token(spec)

    async def undo(self, operation: Operation) -> None:
        """Takes nothing."""

    async def _account(self, namespace: str, name: str) -> Object | None:
        key = f"{PREFIX}serviceaccounts/{namespace}/{name}"
        revision = self.store.revision
        item = await self.store.get(key)
        if item is None and name == "default":
            watch = self.store.watch(f"{PREFIX}serviceaccounts/{namespace}/", after=revision)
            try:
                async with asyncio.timeout(self.wait):
                    while item is None:
                        item = next((change.item for change in await watch.next() if change.key == key), None)
            except TimeoutError:
                return None
            finally:
                watch.close()
        return unpack(item) if item else None


def _refused(operation: Operation, why: str) -> ApiError:
    return access_denied(f'pods "{operation.name}" is forbidden: {why}', resource="pods", name=operation.name)


def mount_token(spec: Object) -> None:
    """Mounts the token volume into every container without a mount at that path; an existing token volume is reused."""
    containers = [*spec.get("initContainers", []), *spec.get("containers", [])]
    bare = [container for container in containers if not _mounted(container)]
    if not bare:
        return
    there = next((volume["name"] for volume in spec.get("volumes", []) if volume["name"].startswith(TOKEN_VOLUME)), "")
    name = there or generate_name(TOKEN_VOLUME, _RANDOM)
    for container in bare:
        mount = {"name": name, "readOnly": True, "mountPath": TOKEN_MOUNT}
        container["volumeMounts"] = [*container.get("volumeMounts", []), mount]
    if not there:
        spec["volumes"] = [*spec.get("volumes", []), _token_volume(name)]


def _mounted(container: Object) -> bool:
    return any(
        volume_mount.get("mountPath", "").rstrip("/") == TOKEN_MOUNT
        for volume_mount in container.get("volumeMounts", [])
    )


def _token_volume(name: str) -> dict[str, Any]:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 420}}


@dataclass(frozen=True, slots=True)
class Priorities:
    """Resolves a pod's priority class to the number that schedulers compare."""

    store: Store

    async def admit(self, operation: Operation) -> None:
        if operation.verb == "DELETE" or not operation.is_for("", "pods"):
            return
        spec = operation.obj["spec"]
        if operation.old is not None:
            for part in ("priority", "preemptionPolicy"):
                if part in operation.old["spec"]:
                    spec.setdefault(part, operation.old["spec"][part])
            return
        name = spec.get("priorityClassName", "")
        chosen = await (self._named(operation, name) if name else self._default())
        value = chosen["value"] if chosen else 0
        policy = (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority")
        for what, part, computed in (
            ("integer value of priority", "priority", value),
            ("string value of PreemptionPolicy", "preemptionPolicy", policy),
        ):
            if spec.setdefault(part, computed) != computed:
                why = f"the {what} ({spec[part]}) must not be provided in pod spec; priority admission controller "
                raise _refused(operation, f"{why}computed {computed} from the given PriorityClass name")
        if chosen and not name:
            spec["priorityClassName"] = chosen["metadata"]["name"]

    async def undo(self, operation: Operation) -> None:
        """Takes nothing."""

    async def _named(self, operation: Operation, name: str) -> Object:
        item = await self.store.get(f"{PREFIX}priorityclasses/{name}")
        if item is None:
            raise _refused(operation, f"no PriorityClass with name {name} was found")
        return unpack(item)

    async def _default(self) -> Object | None:
        page = await self.store.list(f"{PREFIX}priorityclasses/")
        classes = [class_ for class_ in map(unpack, page.items) if class_.get("globalDefault")]
        return min(classes, key=lambda class_: int(class_["value"]), default=None)


class DefaultTolerations:
    """DefaultTolerationSeconds: a pod stays five minutes on a failing node unless it has tolerations of its own."""

    async def admit(self, operation: Operation) -> None:
        if operation.verb == "DELETE" or operation.subresource or not operation.is_for("", "pods"):
            return
        spec = operation.obj["spec"]
        tolerations = spec.get("tolerations", [])
        added = [
            _toleration(key)
            for key in FAILURE_TAINTS
            if not any(_tolerates(toleration, key) for toleration in tolerations)
        ]
        if added:
            spec["tolerations"] = [*tolerations, *added]

    async def undo(self, operation: Operation) -> None:
        """Takes nothing."""


def _tolerates(toleration: Object, key: str) -> bool:
    same_key = toleration.get("key", "") in ("", key)
    return same_key and toleration.get("effect", "") in ("", "NoExecute")


def _toleration(key: str) -> Object:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
