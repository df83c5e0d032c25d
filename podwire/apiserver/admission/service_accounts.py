"""ServiceAccount: sets the service account of a pod and mounts the account's token, root certificate and namespace."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.ports import Store
from podwire.apiserver.request import offload
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, unpack
from podwire.objects.names import generate_name

TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105  a path, no secret
TOKEN_VOLUME = "kube-api-access-"  # noqa: S105  a name, no secret
TOKEN_SECONDS = 3607
ROOT_CA = "kube-root-ca.crt"
MIRROR = "kubernetes.io/config.mirror"

_RANDOM = random.Random()


@dataclass(frozen=True, slots=True)
class ServiceAccounts(AdmissionPlugin):
    """Sets a pod's service account and mounts the account's token, root certificate and namespace."""

    store: Store
    wait: float
    """Seconds to wait for the default account of a new namespace, which a controller creates."""

    verbs = frozenset({"CREATE"})
    resources = frozenset({("", "pods")})

    async def admit(self, operation: Operation) -> None:
        spec = operation.obj["spec"]
        if MIRROR in operation.obj["metadata"].get("annotations", {}):
            if spec.get("serviceAccountName"):
                raise operation.forbidden("a mirror pod may not reference service accounts")
            return
        name = spec.get("serviceAccountName") or "default"
        account = await self._account(operation.namespace, name)
        if account is None:
            where = f"{operation.namespace}/{name}"
            raise operation.forbidden(f'error looking up service account {where}: serviceaccount "{name}" not found')
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        if "imagePullSecrets" not in spec and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        if spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True)):
            await offload.run(mount_token, spec)

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


def mount_token(spec: Object) -> None:
    """Mounts the token volume into every container without a mount at that path; an existing token volume is reused."""
    containers = [*spec.get("initContainers", []), *spec.get("containers", [])]
    bare = [container for container in containers if not _mounted(container)]
    if not bare:
        return
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    existing = next((volume for volume in volumes if volume.startswith(TOKEN_VOLUME)), "")
    name = existing or generate_name(TOKEN_VOLUME, _RANDOM)
    for container in bare:
        mount = {"name": name, "readOnly": True, "mountPath": TOKEN_MOUNT}
        container["volumeMounts"] = [*container.get("volumeMounts", []), mount]
    if not existing:
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
