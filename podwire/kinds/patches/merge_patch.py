"""JSON Merge Patch (RFC 7386): objects are merged, null removes, everything else replaces."""

from typing import Any


def apply(obj: Any, patch: Any) -> Any:
    """Returns the object after the patch."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = apply(merged.get(key), value)
        else:
            merged[key] = value
    return merged
