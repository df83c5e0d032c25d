"""What `kubectl apply` without `--server-side` left behind: an annotation that says what it applied.

Who turns to server-side apply meets no conflict for what the annotation already says, and as long as the annotation is
there it is kept up to date, so that one can turn back.
"""

from typing import Any

import msgspec

from podwire.kinds.apply.compare import compare
from podwire.kinds.apply.fields import claimed
from podwire.kinds.apply.fieldsets import FieldSet, difference
from podwire.kinds.apply.ownership import Object, Version

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
MANAGER = "kubectl"
"""The only manager for whom this is done; any other name is a way around it."""
ANNOTATIONS_LIMIT = 256 * 1024

_encode = msgspec.json.Encoder(order="sorted").encode


def allowed(version: Version, live: Object) -> FieldSet:
    """The fields that were applied from the client's side and have not changed since."""
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
    """The object with the annotation, if it has one, saying what is applied now."""
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
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}
