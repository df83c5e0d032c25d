"""Label selectors on one line, in the syntax that `kubectl -l` takes."""

from podwire.kinds.tables.values import NONE, Json, elements, part, strings, text
from podwire.objects import selectors


def selector(value: Json, key: str, *, empty: str = NONE, broken: str = "<error>") -> str:
    """The label selector under `key`."""
    chosen = part(value, key)
    cleaned = {
        "matchLabels": {label: each for label, each in part(chosen, "matchLabels").items() if isinstance(each, str)},
        "matchExpressions": [
            {"key": text(each, "key"), "operator": text(each, "operator"), "values": strings(each, "values")}
            for each in elements(chosen, "matchExpressions")
        ],
    }
    try:
        return str(selectors.from_object(cleaned)) or empty
    except ValueError:
        return broken
