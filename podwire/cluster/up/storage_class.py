"""The StorageClass of a new cluster: directories on its nodes."""

from pathlib import Path
from typing import Any

from podwire.objects import persistent_volumes as storage
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials, http_client

NAME = "local-path"


def local_path_class(*, default: bool) -> dict[str, Any]:
    marks = {storage.DEFAULT_CLASS_MARKS[0]: "true"} if default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": NAME, "annotations": marks},
        "provisioner": storage.LOCAL_PATH,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }


async def create_default(kubeconfig: Path) -> None:
    """Creates the class unless one of its name exists, whatever it says; the default only if there is none."""
    kind = BUILTIN.of_kind("storage.k8s.io/v1", "StorageClass")
    if kind is None:
        raise LookupError("StorageClass")
    async with http_client.connect(credentials.load(kubeconfig), user_agent="podwire-up") as http:
        api = Client(http)
        classes = (await api.list(kind)).items
        if all(class_["metadata"]["name"] != NAME for class_ in classes):
            try:
                await api.create(local_path_class(default=not storage.default_class(classes)))
            except ApiError as error:
                if error.code != 409:
                    raise
