"""Required plugins of a pod."""

from collections.abc import Iterable, Mapping, Sequence

import yaml

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAnnotation

ANNOTATION = "required-plugins.noderesource.dev"
"""A list of plugins by name or NN-name; with /pod or /container.NAME behind it for a part of a pod."""

MAX_LENGTH = 4096
"""Of a list of plugins. Annotations may have 256 KiB; to read so much YAML would hold up every pod of the node."""

_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})


def required_for(
    pod: pb.PodSandbox, container_name: str | None, always: Sequence[str], tolerate_annotation: str
) -> tuple[str, ...]:
    """Returns the plugins that the host requires, then those that the pod requires; each once. Raises BadAnnotation.

    A pod in the node's own network is exempt, and so is one that says so: otherwise the pod that brings the plugin
    could not start.
    """
    if not any(namespace.type == "network" for namespace in pod.linux.namespaces):
        return ()
    if tolerate_annotation and _tolerates(pod.annotations, tolerate_annotation, container_name):
        return ()
    return tuple(dict.fromkeys([*always, *_asked(pod.annotations, container_name)]))


def _keys(annotation: str, container_name: str | None) -> Iterable[str]:
    """The most specific one first."""
    if container_name is not None:
        yield f"{annotation}/container.{container_name}"
    yield f"{annotation}/pod"
    yield annotation


def _tolerates(annotations: Mapping[str, str], annotation: str, container_name: str | None) -> bool:
    key = next((name for name in _keys(annotation, container_name) if name in annotations), None)
    if key is None:
        return False
    value = annotations[key]
    if value not in _TRUE | _FALSE:
        raise BadAnnotation(key, f"{value!r} is neither true nor false")
    return value in _TRUE


def _asked(annotations: Mapping[str, str], container_name: str | None) -> list[str]:
    key = next((name for name in _keys(ANNOTATION, container_name) if name in annotations), None)
    if key is None:
        return []
    if len(annotations[key]) > MAX_LENGTH:
        raise BadAnnotation(key, f"is longer than {MAX_LENGTH} characters")
    try:
        found = yaml.safe_load(annotations[key])
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadAnnotation(key, "is not a list of plugins, in YAML or JSON") from error
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, str) and item for item in found):
        raise BadAnnotation(key, "is not a list of plugins, in YAML or JSON")
    return found
