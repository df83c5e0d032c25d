"""Manifests of static pods: one pod in each file of a directory, as YAML or JSON.

A manifest is completed as upstream's kubelet does it: the name gets the node's as a suffix, the uid is a hash of the
content (so a changed file is another pod), and the pod tolerates all NoExecute taints.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from podwire.kubelet.config.sandbox import SOURCE
from podwire.kubelet.referenced_objects import references_of
from podwire.linux.fs.trust import check_directory, read_trusted
from podwire.objects import pods
from podwire.protocols.k8sapi import codec, yamls
from podwire.protocols.k8sapi.status import FieldError
from podwire.protocols.k8sapi.watch import Object

if TYPE_CHECKING:
    from podwire.kinds.shape import Shape

HASH, MIRROR = "kubernetes.io/config.hash", "kubernetes.io/config.mirror"
FILE = "file"
LARGEST = 3 * 1024 * 1024
"""Bytes of a manifest, as of a request to the API server."""


class BadManifest(Exception):
    """A file that is not the manifest of a pod that can run here; says the field and the reason."""


@dataclass(slots=True)
class Manifests:
    """The content of a directory."""

    pods: dict[str, Object] = field(default_factory=dict)
    """By path."""
    errors: dict[str, str] = field(default_factory=dict)
    """By path."""


def read_directory(directory: Path, node: str) -> Manifests:
    """Reads all files of a directory, except hidden ones. Blocks. Raises OSError if it cannot be listed.

    A manifest makes any pod, also a privileged one: directory and files that others can change are refused.
    """
    check_directory(directory)
    found = Manifests()
    names: dict[tuple[str, str], str] = {}
    for path in sorted(directory.iterdir()):
        if path.name.startswith(".") or path.is_dir():
            continue
        try:
            pod = parse(read_trusted(path, LARGEST + 1), str(path), node)
            identity = pod["metadata"]["namespace"], pod["metadata"]["name"]
            if identity in names:
                raise BadManifest(f"metadata.name: {identity[0]}/{identity[1]} is in {names[identity]} as well")
            names[identity] = str(path)
            found.pods[str(path)] = pod
        except (BadManifest, OSError) as error:
            found.errors[str(path)] = str(error)
    return found


def parse(data: bytes, path: str, node: str) -> Object:
    """Returns the pod of a manifest, complete. Raises BadManifest."""
    if len(data) > LARGEST:
        raise BadManifest(f"is larger than {LARGEST} bytes")
    try:
        value = (codec.decode_json if data.lstrip()[:1] == b"{" else yamls.decode_yaml)(data).value
    except codec.BadBody as error:
        raise BadManifest(str(error)) from error
    if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != ("v1", "Pod"):
        raise BadManifest("apiVersion and kind: must be v1 and Pod")
    pod = _shaped(value)
    meta, spec = pod["metadata"], pod["spec"]
    for name in (
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ):
        meta.pop(name, None)
    pod.pop("status", None)
    if not meta.get("name"):
        raise BadManifest("metadata.name: Required value")
    content = msgspec.json.encode(pod, order="sorted") + f"host:{node}file:{path}".encode()
    uid = meta.get("uid") or hashlib.blake2b(content, digest_size=16).hexdigest()
    meta |= {"uid": uid, "name": f"{meta['name']}-{node}", "namespace": meta.get("namespace") or "default"}
    meta["annotations"] = {**(meta.get("annotations") or {}), HASH: uid, SOURCE: FILE}
    spec["nodeName"] = node
    spec["tolerations"] = [*(spec.get("tolerations") or ()), {"operator": "Exists", "effect": "NoExecute"}]
    _validate(pod)
    return pod


def _shaped(value: Object) -> Object:
    """Raises BadManifest. Unknown fields are refused: nobody sees a warning."""
    from podwire.kinds.shape import Report, TypeMismatch  # noqa: PLC0415 - only for nodes with static pods

    report = Report(duplicates=[])
    try:
        pod: Object = _pod_shape().decode(value, "", report)
    except TypeMismatch as error:
        raise BadManifest(str(error)) from error
    if report.unknown:
        raise BadManifest(f'unknown field "{report.unknown[0]}"')
    if not isinstance(pod.get("metadata"), dict) or not isinstance(pod.get("spec"), dict):
        raise BadManifest("metadata and spec: Required value")
    return pod


@cache
def _pod_shape() -> "Shape":
    from podwire.kinds.schema.types import Schemas  # noqa: PLC0415 - only for nodes with static pods

    shape = Schemas().shape("v1", "Pod")
    if shape is None:
        raise LookupError("Pod")
    return shape


def _validate(pod: Object) -> None:
    """Fills in defaults as the API server does, and applies its rules. Raises BadManifest."""
    from podwire.kinds.builtin.core.pod.strategy import POD  # noqa: PLC0415 - only for nodes with static pods
    from podwire.protocols.k8sapi.builtin import BUILTIN  # noqa: PLC0415 - as above

    kind = BUILTIN.of_kind("v1", "Pod")
    if kind is None:
        raise LookupError("Pod")
    POD.apply_defaults(pod)
    POD.prepare_for_create(kind, pod)
    errors: list[FieldError] = POD.errors_on_create(kind, pod)
    if errors:
        raise BadManifest("; ".join(str(error) for error in errors[:3]))
    try:
        parsed = pods.read(pod)
    except msgspec.ValidationError as error:
        raise BadManifest(str(error)) from error
    for reference in _references(parsed, pod["spec"]):
        raise BadManifest(f"spec: a static pod cannot refer to {reference}: it runs without an API server")


def _references(pod: pods.Pod, spec: Object) -> Iterator[str]:
    if pod.spec.service_account_name:
        yield "a ServiceAccount"
    yield from (f"{reference.kind} {reference.name}" for reference in sorted(references_of(pod), key=str))
    if pod.spec.resource_claims:
        yield "ResourceClaims"
    for volume in spec.get("volumes") or ():
        if "persistentVolumeClaim" in volume or "ephemeral" in volume:
            yield "a PersistentVolumeClaim"
