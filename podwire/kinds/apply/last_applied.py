"""The annotation last-applied-configuration, which `kubectl apply` without `--server-side` writes.

A user who switches to server-side apply gets no conflicts for fields that the annotation contains. As long as the
annotation exists it is updated, so that the user can switch back.
"""

from typing import Any

import msgspec

from podwire.kinds.apply.compare import compare
from podwire.kinds.apply.fields import claimed
from podwire.kinds.apply.fieldsets import FieldSet, difference
from podwire.kinds.apply.ownership import Object, Version

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
MANAGER = "kubectl"
"""The only field manager that gets this treatment; any other name avoids it."""
ANNOTATIONS_LIMIT = 256 * 1024

_encode = msgspec.json.Encoder(order="sorted").encode


def allowed(version: Version, live: Object) -> FieldSet:
    """Returns the fields that were applied from the client's side and have not changed since."""
    try:
        last = msgspec.json.decode(_annotations(live).get(ANNOTATION) or "null")
    except msgspec.MsgspecError:
        return {}
    if not isinstance(last, dict) or last.get("apiVersion") != version.api_version:
        return {}
    change = compare(version.type, last, live)
    fields = claimed(version.type, last)
    for changed in (change.modified, change.added, change.removed):
        fields = difference(fields, changed)
    return fields


def kept_up(obj: Object, config: Object) -> Object:
    """Returns the object with the annotation, if it has one, saying what is applied now."""
    if not _annotations(obj).get(ANNOTATION):
        return obj
    annotations = {**_annotations(obj), ANNOTATION: _encode(_without_annotation(config)).decode() + "\n"}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        del annotations[ANNOTATION]
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _without_annotation(config: Object) -> Object:
    annotations = _annotations(config)
    if ANNOTATION not in annotations:
        return config
    rest = {key: value for key, value in annotations.items() if key != ANNOTATION}
    return {**config, "metadata": {**config["metadata"], "annotations": rest}}


def _annotations(obj: Object) -> dict[str, Any]:
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}
