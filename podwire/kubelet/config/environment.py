"""Environment variables of a container: of Services, of envFrom, and of env. Pure.

Later ones override earlier ones of the same name: services, then envFrom in its order, then env in its order.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from podwire.kubelet.config.fields import BadReference, NodeFacts, field_value, resource_value
from podwire.kubelet.config.services import service_variables
from podwire.objects import names
from podwire.objects.containers import Container, EnvFrom, EnvSource, KeyRef, Ref
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.watch import Object

CONFIG_MAP, SECRET = "ConfigMap", "Secret"
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


class ConfigError(Exception):
    """The configuration of a container is invalid; the text is for its status."""


class Need(NamedTuple):
    """An object of the pod's namespace that a container's variables refer to."""

    kind: str
    name: str
    optional: bool


@dataclass(frozen=True, slots=True)
class _Sources:
    """Sources of values other than the container itself."""

    pod: Pod
    container: Container
    node: NodeFacts
    pod_ips: tuple[str, ...]
    objects: Mapping[str, Mapping[str, Object | None]]
    """By kind and name; an object that does not exist is None or missing."""


def needs(container: Container) -> tuple[Need, ...]:
    """Each object once; optional if every reference to it is."""
    optional_by_key: dict[tuple[str, str], bool] = {}
    for kind, ref in _references(container):
        key = (kind, ref.name)
        optional_by_key[key] = optional_by_key.get(key, True) and bool(ref.optional)
    return tuple(Need(*key, optional) for key, optional in optional_by_key.items())


def environment(
    pod: Pod,
    container: Container,
    *,
    node: NodeFacts,
    pod_ips: tuple[str, ...] = (),
    config_maps: Mapping[str, Object | None],
    secrets: Mapping[str, Object | None],
    services: Sequence[Object] = (),
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables, and warnings about those that were skipped. Raises ConfigError.

    Values of a Secret need not be text: their bytes are represented as lone surrogates (surrogateescape).
    """
    sources = _Sources(pod, container, node, pod_ips, {CONFIG_MAP: config_maps, SECRET: secrets})
    env = service_variables(services, pod.namespace, links=pod.spec.enable_service_links)
    warnings: list[str] = []
    for source in container.env_from:
        env.update(_all_entries(source, sources, warnings))
    for variable in container.env:
        if variable.value or variable.value_from is None:
            env[variable.name] = expand(variable.value, env)
        elif (value := _value(variable.value_from, sources)) is not None:
            env[variable.name] = value
    return env, tuple(warnings)


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the variable's value, or stays when there is none; `$$` becomes `$`."""
    if "$" not in text:
        return text

    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else env.get(name, match[0])

    return _REFERENCE.sub(replaced, text)


def entries(kind: str, object_: Object) -> dict[str, str]:
    """The data of a ConfigMap or Secret as text."""
    data: Mapping[str, Any] = object_.get("data") or {}
    if kind == CONFIG_MAP:
        return dict(data)
    return {key: base64.b64decode(value or "").decode(errors="surrogateescape") for key, value in data.items()}


def _references(container: Container) -> Iterator[tuple[str, Ref | KeyRef]]:
    for source in container.env_from:
        for kind, whole in ((CONFIG_MAP, source.config_map_ref), (SECRET, source.secret_ref)):
            if whole is not None:
                yield kind, whole
    for variable in container.env:
        value_from = variable.value_from
        if value_from is not None and not variable.value:
            for kind, one in ((CONFIG_MAP, value_from.config_map_key_ref), (SECRET, value_from.secret_key_ref)):
                if one is not None:
                    yield kind, one


def _all_entries(source: EnvFrom, sources: _Sources, warnings: list[str]) -> dict[str, str]:
    """All entries of an object; those with invalid names are skipped with a warning."""
    kind, ref = (CONFIG_MAP, source.config_map_ref) if source.config_map_ref else (SECRET, source.secret_ref)
    held = _object(kind, ref, sources) if ref is not None else None
    if ref is None or held is None:
        return {}
    variables = {source.prefix + key: value for key, value in entries(kind, held).items()}
    invalid = sorted(name for name in variables if names.env_var_name(name))
    if invalid:
        warnings.append(
            f"Keys [{', '.join(invalid)}] from the EnvFrom {kind.lower()} {sources.pod.namespace}/{ref.name} "
            "were skipped since they are considered invalid environment variable names."
        )
    return {name: value for name, value in variables.items() if name not in invalid}


def _value(source: EnvSource, sources: _Sources) -> str | None:
    """None for an optional object or key that does not exist."""
    try:
        if source.field_ref is not None:
            return field_value(sources.pod, source.field_ref.field_path, node=sources.node, pod_ips=sources.pod_ips)
        if source.resource_field_ref is not None:
            return resource_value(sources.pod, sources.container, source.resource_field_ref, sources.node)
    except BadReference as error:
        raise ConfigError(str(error)) from error
    if source.config_map_key_ref is not None:
        return _entry(CONFIG_MAP, source.config_map_key_ref, sources)
    if source.secret_key_ref is not None:
        return _entry(SECRET, source.secret_key_ref, sources)
    return ""


def _entry(kind: str, ref: KeyRef, sources: _Sources) -> str | None:
    held = _object(kind, ref, sources)
    if held is None:
        return None
    value = entries(kind, held).get(ref.key)
    if value is None and not ref.optional:
        raise ConfigError(f"couldn't find key {ref.key} in {kind} {sources.pod.namespace}/{ref.name}")
    return value


def _object(kind: str, ref: Ref | KeyRef, sources: _Sources) -> Object | None:
    held = sources.objects[kind].get(ref.name)
    if held is None and not ref.optional:
        raise ConfigError(f'{kind.lower()} "{ref.name}" not found')
    return held
