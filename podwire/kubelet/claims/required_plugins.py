"""NRI plugins that a pod's drivers require, named by an annotation of its sandbox. Pure.

A driver that works through an NRI plugin has done half of its work when it has prepared a claim. A runtime that knows
the annotation does not start the pod without the plugin; others ignore it.
"""

from collections.abc import Iterable, Mapping

import msgspec
import yaml

from podwire.protocols.nri.required import ANNOTATION, MAX_LENGTH

PLUGINS = {"net.podwire.dev": "network-driver"}
"""By driver name."""


def plugins(drivers: Iterable[str]) -> list[str]:
    return sorted({PLUGINS[driver] for driver in drivers if driver in PLUGINS})


def requiring(annotations: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Annotations that change so that these plugins are required in addition to those that the pod names itself.

    Only the most specific list counts, so they are added to every list. A list that cannot be read stays as it is: the
    runtime rejects the pod and says why.
    """
    required = list(names)
    if not required:
        return {}
    pod = f"{ANNOTATION}/pod"
    lists = {key: text for key, text in annotations.items() if key.startswith(f"{ANNOTATION}/")}
    lists.setdefault(pod, annotations.get(ANNOTATION, ""))
    return {key: _with(text, required) for key, text in lists.items()}


def _with(text: str, names: list[str]) -> str:
    try:
        parsed = yaml.safe_load(text) if len(text) <= MAX_LENGTH else text
    except (yaml.YAMLError, RecursionError, ValueError):
        return text
    listed = [] if parsed is None else parsed
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        return text
    return msgspec.json.encode(list(dict.fromkeys([*listed, *names]))).decode()
