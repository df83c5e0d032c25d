"""Warnings about PersistentVolumes, claims and StorageClasses, in upstream's words."""

from collections.abc import Iterator, Mapping

from podwire.kinds.podspec.volume_warnings import removed_volume_warnings
from podwire.kinds.podspec.warnings import DEPRECATED_NODE_LABELS, Part, claim_warnings, node_term_warnings

CLAIM_ANNOTATIONS: Mapping[str, str] = {
    "volume.beta.kubernetes.io/storage-class": 'deprecated since v1.8; use "storageClassName" attribute instead',
}
VOLUME_ANNOTATIONS: Mapping[str, str] = {
    **CLAIM_ANNOTATIONS,
    "volume.beta.kubernetes.io/mount-options": 'deprecated since v1.31; use "mountOptions" attribute instead',
}


def volume_warnings(new: Part, _old: Part | None) -> list[str]:
    spec = new["spec"]
    warnings = list(_annotations(new, VOLUME_ANNOTATIONS))
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        warnings.append(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning."
        )
    required = (spec.get("nodeAffinity") or {}).get("required") or {}
    for index, term in enumerate(required.get("nodeSelectorTerms") or ()):
        warnings += node_term_warnings(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{index}]")
    return [*warnings, *removed_volume_warnings(spec, "spec")]


def volume_claim_warnings(new: Part, _old: Part | None) -> list[str]:
    return [*_annotations(new, CLAIM_ANNOTATIONS), *claim_warnings(new["spec"], "spec")]


def storage_class_warnings(new: Part, _old: Part | None) -> list[str]:
    return [
        f"allowedTopologies[{index}].matchLabelExpressions[{number}].key: {DEPRECATED_NODE_LABELS[expression['key']]}"
        for index, topology in enumerate(new.get("allowedTopologies") or ())
        for number, expression in enumerate(topology.get("matchLabelExpressions") or ())
        if expression.get("key") in DEPRECATED_NODE_LABELS
    ]


def _annotations(obj: Part, deprecated: Mapping[str, str]) -> Iterator[str]:
    annotations = obj["metadata"].get("annotations") or {}
    for key, message in deprecated.items():
        if key in annotations:
            yield f"metadata.annotations[{key}]: {message}"
