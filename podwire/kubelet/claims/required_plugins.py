"""Which plugins a pod's runtime must have, told by an annotation of its sandbox. Pure.

A driver that works through a plugin of the runtime has done half of its work when it has prepared a claim. Runtimes
that know the annotation do not start the pod without the plugin; others do not care.
"""

from collections.abc import Iterable, Mapping

import msgspec
import yaml

from podwire.protocols.nri.required import ANNOTATION, MAX_LENGTH

PLUGINS = {"net.podwire.dev": "network-driver"}
"""Of drivers, by their names."""


def plugins(drivers: Iterable[str]) -> list[str]:
    return sorted({PLUGINS[each] for each in drivers if each in PLUGINS})


def requiring(annotations: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """What changes so that these plugins are required beside those that the pod names itself.

    The most specific list counts alone, so each that there is gets them all. One that cannot be read stays: the
    runtime refuses the pod and says why.
    """
    wanted = list(names)
    if not wanted:
        return {}
    pod = f"{ANNOTATION}/pod"
    lists = {key: text for key, text in annotations.items() if key.startswith(f"{ANNOTATION}/")}
    lists.setdefault(pod, annotations.get(ANNOTATION, ""))
    return {key: _with(text, wanted) for key, text in lists.items()}


def _with(text: str, names: list[str]) -> str:
    try:
        found = yaml.safe_load(text) if len(text) <= MAX_LENGTH else text
    except (yaml.YAMLError, RecursionError, ValueError):
        return text
    listed = [] if found is None else found
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        return text
    return msgspec.json.encode(list(dict.fromkeys([*listed, *names]))).decode()
