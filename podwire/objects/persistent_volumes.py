"""PersistentVolumes, claims and storage classes: what they request and offer, and which volume fits a claim. Pure.

Objects are as the API writes them. Annotations and rules are upstream's, so that other binders and provisioners can
take part: a volume is bound to a claim by `spec.claimRef` with the claim's uid, a claim to a volume by
`spec.volumeName`, and the annotation `bind-completed` says that both were written.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from podwire.objects import node_affinity, quantity, selectors
from podwire.objects.nodes import Node
from podwire.objects.quantity import Quantity

Object = Mapping[str, Any]

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
STORAGE_PROVISIONERS = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner")
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
DEFAULT_CLASS_MARKS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)

NO_PROVISIONER = "kubernetes.io/no-provisioner"
LOCAL_PATH = "podwire.dev/local-path"
"""The built-in provisioner: a volume is a directory on a node. Also the finalizer of its volumes: the node removes it
after the directory."""
HOSTNAME = "kubernetes.io/hostname"
"""The label by which such a volume names its node."""
LOCAL_PATH_ROOT = "/var/lib/podwire/volumes"
"""The parent of these directories, as each node sees it."""

CLAIM_PROTECTION, VOLUME_PROTECTION = "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"
"""Finalizers of claims that pods use, and of volumes that are bound."""

SINGLE_POD = "ReadWriteOncePod"
_ZERO = Quantity(0)


def annotations(object_: Object) -> Mapping[str, str]:
    return object_["metadata"].get("annotations") or {}


def class_of_claim(claim: Object) -> str:
    return annotations(claim).get(CLASS_ANNOTATION) or claim["spec"].get("storageClassName") or ""


def has_class(claim: Object) -> bool:
    """Returns whether a claim names a class; the empty name is one: no class."""
    return CLASS_ANNOTATION in annotations(claim) or claim["spec"].get("storageClassName") is not None


def class_of_volume(volume: Object) -> str:
    return annotations(volume).get(CLASS_ANNOTATION) or volume["spec"].get("storageClassName") or ""


def default_class(classes: Iterable[Object]) -> str:
    """Returns the name of the default class: of several the newest, and of these the first by name; empty for none."""
    marked = [
        (str(class_["metadata"].get("creationTimestamp", "")), str(class_["metadata"]["name"]))
        for class_ in classes
        if any(annotations(class_).get(mark) == "true" for mark in DEFAULT_CLASS_MARKS)
    ]
    newest = max((created for created, _name in marked), default="")
    return min((name for created, name in marked if created == newest), default="")


def waits_for_consumer(class_: Object | None) -> bool:
    """Returns whether claims of a class are bound when a pod that uses them is scheduled."""
    return class_ is not None and class_.get("volumeBindingMode") == "WaitForFirstConsumer"


def amount(amounts: Mapping[str, Any] | None) -> Quantity:
    """Returns the storage of a list of resources; one that cannot be read is nothing."""
    given = (amounts or {}).get("storage")
    try:
        return quantity.parse(str(given)) if given is not None else _ZERO
    except ValueError:
        return _ZERO


def requested(claim: Object) -> Quantity:
    return amount((claim["spec"].get("resources") or {}).get("requests"))


def capacity(volume: Object) -> Quantity:
    return amount(volume["spec"].get("capacity"))


def is_bound_to(volume: Object, claim: Object) -> bool:
    """Returns whether a volume names a claim; a reference without a uid, which users write, is to any of that name."""
    reference, meta = volume["spec"].get("claimRef"), claim["metadata"]
    if not reference or (reference.get("namespace"), reference.get("name")) != (meta.get("namespace"), meta["name"]):
        return False
    return reference.get("uid", "") in ("", meta["uid"])


def is_fully_bound(claim: Object) -> bool:
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in annotations(claim)


def same_mode(claim: Object, volume: Object) -> bool:
    mode = "Filesystem"
    return (claim["spec"].get("volumeMode") or mode) == (volume["spec"].get("volumeMode") or mode)


def has_access_modes(claim: Object, volume: Object) -> bool:
    return {*(claim["spec"].get("accessModes") or ())} <= {*(volume["spec"].get("accessModes") or ())}


def same_attributes_class(claim: Object, volume: Object) -> bool:
    field = "volumeAttributesClassName"
    return (claim["spec"].get(field) or "") == (volume["spec"].get(field) or "")


def is_reachable(volume: Object, node: Node) -> bool:
    """Returns whether the node affinity of a volume allows a node."""
    wanted = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return not wanted or node_affinity.selected(wanted)(node)


def why_unsuitable(volume: Object, claim: Object) -> str:
    """Returns why a claim cannot have the volume that it names; empty if it can."""
    if volume["metadata"].get("deletionTimestamp"):
        return f'the volume is marked for deletion "{volume["metadata"]["name"]}"'
    if capacity(volume).value() < requested(claim).value():
        return "requested PV is too small"
    if class_of_volume(volume) != class_of_claim(claim):
        return "storageClassName does not match"
    if not same_attributes_class(claim, volume):
        return "volumeAttributesClassName does not match"
    if not same_mode(claim, volume):
        return "incompatible volumeMode"
    return "" if has_access_modes(claim, volume) else "incompatible accessMode"


def best_match(
    claim: Object,
    volumes: Iterable[Object],
    *,
    node: Node | None = None,
    excluded: Collection[str] = (),
    waits: bool = False,
) -> Object | None:
    """Returns the volume for a claim: one that names the claim already, else the smallest that is large enough.

    Of several sizes that fit, volumes with fewer access modes come first. With a node only volumes that it can reach
    are taken; without one, `waits` says that the scheduler will choose.
    """
    try:
        selector = selectors.from_object(claim["spec"]["selector"]) if claim["spec"].get("selector") else None
    except ValueError:
        return None
    fitting: list[tuple[int, Quantity, str, Object]] = []
    for volume in volumes:
        meta, spec = volume["metadata"], volume["spec"]
        own = is_bound_to(volume, claim)
        if (spec.get("claimRef") and not own) or meta["name"] in excluded or meta.get("deletionTimestamp"):
            continue
        if capacity(volume) < requested(claim) or not same_mode(claim, volume):
            continue
        if not same_attributes_class(claim, volume):
            continue
        if node is None and not has_access_modes(claim, volume):
            continue
        reachable = node is None or is_reachable(volume, node)
        if own:
            return volume if reachable else None
        if (
            reachable
            and not (waits and node is None)
            and (volume.get("status") or {}).get("phase") == "Available"
            and (selector is None or selector.matches(meta.get("labels") or {}))
            and class_of_volume(volume) == class_of_claim(claim)
            and has_access_modes(claim, volume)
        ):
            modes = len(spec.get("accessModes") or ()) if node is None else 0
            fitting.append((modes, capacity(volume), meta["name"], volume))
    return min(fitting, key=lambda row: row[:3])[3] if fitting else None


def claim_reference(claim: Object) -> dict[str, Any]:
    """Returns the reference by which a volume names its claim."""
    meta = claim["metadata"]
    return {
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "apiVersion": "v1",
        "resourceVersion": meta["resourceVersion"],
    }


def bound_volume(volume: Object, claim: Object) -> dict[str, Any] | None:
    """Returns a volume with its reference to a claim; None if it has that."""
    reference = volume["spec"].get("claimRef") or {}
    wanted = claim_reference(claim)
    keys = ("namespace", "name", "uid")
    same = all(reference.get(key) == wanted[key] for key in keys)
    by_user = is_bound_to(volume, claim)
    if same and by_user:
        return None
    metadata = dict(volume["metadata"])
    if not by_user:
        metadata["annotations"] = {**annotations(volume), BOUND_BY_CONTROLLER: "yes"}
    return {**volume, "metadata": metadata, "spec": {**volume["spec"], "claimRef": wanted}}


def hostname_of(volume: Object) -> str:
    """Returns the one hostname in the node affinity of a volume; empty if there are other conditions."""
    terms: Sequence[Any] = ((volume["spec"].get("nodeAffinity") or {}).get("required") or {}).get(
        "nodeSelectorTerms"
    ) or ()
    rows = [row for term in terms for row in term.get("matchExpressions") or ()]
    if len(terms) == len(rows) == 1 and rows[0].get("key") == HOSTNAME and rows[0].get("operator") == "In":
        values: Sequence[Any] = rows[0].get("values") or ()
        return str(values[0]) if len(values) == 1 and not terms[0].get("matchFields") else ""
    return ""


def ephemeral_claim_name(pod: str, volume: str) -> str:
    return f"{pod}-{volume}"


def claims_of_pod(pod: str, volumes: Sequence[Object]) -> list[tuple[str, bool]]:
    """Returns the names of the claims of a pod's volumes, and whether each is made for the pod (ephemeral)."""
    names: dict[str, bool] = {}
    for volume in volumes:
        if source := volume.get("persistentVolumeClaim"):
            names.setdefault(str(source.get("claimName", "")), False)
        elif volume.get("ephemeral") is not None:
            names[ephemeral_claim_name(pod, str(volume.get("name", "")))] = True
    return list(names.items())


def is_made_for(claim: Object, pod_uid: str) -> bool:
    """Returns whether a claim was created for the ephemeral volume of a pod."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == pod_uid for owner in owners)


def not_made_for(claim: Object, pod: str) -> str:
    """Returns upstream's words for a claim that an ephemeral volume would need and that another object has."""
    meta = claim["metadata"]
    ref = f"{meta['namespace']}/{meta['name']}"
    return f"PVC {ref} was not created for pod {pod} (pod is not owner)"
