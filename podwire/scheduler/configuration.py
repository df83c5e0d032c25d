"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): profiles with their plugins, from a YAML file.

Upstream's rules decide on the plugins of a profile: it starts with the default plugins; `multiPoint` changes all
extension points, the other sets change one. `disabled` counts before `enabled`, so that `*` and a list replace all.
Here `filter`, `postFilter` and `score` are extension points; plugins have no others. Settings that are known and have
no effect here give a warning; unknown ones are errors.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from podwire.protocols.settings import BadConfig, Read, below, between, list_of, mapped, matching, one_of, parsed
from podwire.scheduler.filters import FILTERS
from podwire.scheduler.profiles import DEFAULT_NAME, Configuration, Profile
from podwire.scheduler.queue import Limits
from podwire.scheduler.resource_requests import CPU, MEMORY
from podwire.scheduler.scores import SCORES, allocation_score

API_VERSION, KIND = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"

PREEMPTION = "DefaultPreemption"
BUILT_IN = frozenset({"PrioritySort", "SchedulingGates", "DefaultBinder"})
"""Plugins that this scheduler always uses."""
NOT_HERE = frozenset({
    "NodeDeclaredFeatures", "GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount",
    "DeferredPodScheduling",
})  # fmt: skip
"""Upstream's plugins that this scheduler does not have."""

_FILTERS = {filter_.name: filter_ for filter_ in FILTERS}
_SCORES = {score.name: score for score in SCORES}
_PLUGINS = frozenset({*_FILTERS, *_SCORES, PREEMPTION})

EXTENSION_POINTS = ("multiPoint", "filter", "postFilter", "score")
NO_POINTS = (
    "preEnqueue", "queueSort", "preFilter", "preScore", "reserve", "permit", "preBind", "bind", "postBind",
)  # fmt: skip
"""Upstream's extension points that plugins do not have here."""
WITHOUT_EFFECT = (
    "parallelism", "leaderElection", "clientConnection", "enableProfiling",
    "enableContentionProfiling", "delayCacheUntilActive",
)  # fmt: skip

_NAME = matching(re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"), "is not a scheduler name: a DNS subdomain")
_WEIGHT = between(0, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class _PluginSet:
    enabled: tuple[tuple[str, int], ...] = ()
    """Names and weights; a weight of 0 is the default one."""
    disabled: frozenset[str] = frozenset()

    def disables(self, name: str) -> bool:
        return name in self.disabled or "*" in self.disabled


def read(data: bytes, name: object) -> Configuration:
    """Raises BadConfig, which names the field."""
    warnings: list[str] = []
    no_effect = partial(_no_effect, warnings)
    keys: dict[str, Read] = {
        "apiVersion": one_of(API_VERSION),
        "kind": one_of(KIND),
        "profiles": list_of(partial(_profile, warnings)),
        "podInitialBackoffSeconds": between(1, 3600),
        "podMaxBackoffSeconds": between(1, 3600),
        "percentageOfNodesToScore": between(0, 100),
        "extenders": _no_extenders,
        **dict.fromkeys(WITHOUT_EFFECT, no_effect),
    }
    given = mapped("", parsed(data, name), keys, required=("apiVersion", "kind"))
    percentage: int = given.get("percentageOfNodesToScore", 0)
    profiles: tuple[Profile, ...] = tuple(
        profile if profile.percentage_of_nodes else replace(profile, percentage_of_nodes=percentage)
        for profile in given.get("profiles", (Profile(),))
    )
    for at, profile in enumerate(profiles):
        if profile.name in (other.name for other in profiles[:at]):
            raise BadConfig(f"profiles[{at}].schedulerName", f'duplicate value: "{profile.name}"')
    default = Limits()
    limits = replace(
        default,
        initial_backoff=float(given.get("podInitialBackoffSeconds", default.initial_backoff)),
        max_backoff=float(given.get("podMaxBackoffSeconds", default.max_backoff)),
    )
    if limits.max_backoff < limits.initial_backoff:
        raise BadConfig("podMaxBackoffSeconds", "must be greater than or equal to podInitialBackoffSeconds")
    return Configuration(profiles=profiles, limits=limits, warnings=tuple(warnings))


def _no_effect(warnings: list[str], key: str, _value: object) -> None:
    warnings.append(f"{key} has no effect in this scheduler")


def _no_extenders(key: str, value: object) -> None:
    if value:
        raise BadConfig(key, "extenders are not supported")


def _profile(warnings: list[str], key: str, value: object) -> Profile:
    keys: dict[str, Read] = {
        "schedulerName": _NAME,
        "plugins": partial(_plugins, warnings),
        "pluginConfig": list_of(_plugin_config),
        "percentageOfNodesToScore": between(0, 100),
    }
    given = mapped(key, value, keys)
    sets: Mapping[str, _PluginSet] = given.get("plugins", {})
    filters = _chosen(sets, "filter", _FILTERS)
    scores = _chosen(sets, "score", _SCORES)
    locals_ = {name: local for name, local in given.get("pluginConfig", ()) if local is not None}
    for name in locals_:
        if [item for item, _args in given["pluginConfig"]].count(name) > 1:
            raise BadConfig(below(key, "pluginConfig"), f"repeated config for plugin {name}")
    return Profile(
        name=given.get("schedulerName", DEFAULT_NAME),
        filters=tuple(_FILTERS[name] for name, _weight in filters),
        scores=tuple(
            replace(_SCORES[name], weight=weight or _SCORES[name].weight, local=locals_.get(name, _SCORES[name].local))
            for name, weight in scores
        ),
        percentage_of_nodes=given.get("percentageOfNodesToScore", 0),
        preempts=bool(_chosen(sets, "postFilter", (PREEMPTION,))),
    )


def _chosen(sets: Mapping[str, _PluginSet], point: str, names: Collection[str]) -> list[tuple[str, int]]:
    """Returns the plugins of an extension point with their weights, 0 for the default one.

    The order is the default one, whatever the order in the file: it decides on the reason that is reported only.
    """
    every, own = sets.get("multiPoint", _PluginSet()), sets.get(point, _PluginSet())
    weights = {name: 0 for name in names if not every.disables(name)}
    weights |= {name: weight for name, weight in every.enabled if name in names}
    weights = {name: weight for name, weight in weights.items() if not own.disables(name)}
    weights |= {name: weight for name, weight in own.enabled if name in names}
    return [(name, weights[name]) for name in names if name in weights]


def _plugins(warnings: list[str], key: str, value: object) -> dict[str, _PluginSet]:
    keys: dict[str, Read] = {
        **{point: partial(_plugin_set, warnings, point) for point in EXTENSION_POINTS},
        **dict.fromkeys(NO_POINTS, partial(_no_effect, warnings)),
    }
    return mapped(key, value, keys)


def _plugin_set(warnings: list[str], point: str, key: str, value: object) -> _PluginSet:
    points: Mapping[str, Iterable[str]] = {"filter": _FILTERS, "score": _SCORES, "postFilter": (PREEMPTION,)}
    possible = points.get(point, _PLUGINS)
    keys: dict[str, Read] = {
        "enabled": _list(partial(_enabled, warnings, frozenset(possible))),
        "disabled": _list(partial(_disabled, warnings)),
    }
    given = mapped(key, value, keys)
    enabled = [item for item in given.get("enabled", ()) if item is not None]
    for name, _weight in enabled:
        if [other for other, _weight in enabled].count(name) > 1:
            raise BadConfig(below(key, "enabled"), f'plugin "{name}" is already registered')
    return _PluginSet(tuple(enabled), frozenset(given.get("disabled", ())))


def _enabled(warnings: list[str], possible: frozenset[str], key: str, value: object) -> tuple[str, int] | None:
    given = mapped(key, value, {"name": _text, "weight": _WEIGHT}, required=("name",))
    name: str = given["name"]
    if name in NOT_HERE:
        warnings.append(f"{below(key, 'name')}: plugin {name} is not supported by this scheduler")
        return None
    if name in BUILT_IN:
        return None
    if name not in _PLUGINS:
        raise BadConfig(below(key, "name"), f'plugin "{name}" does not exist')
    if name not in possible:
        raise BadConfig(below(key, "name"), f'plugin "{name}" does not extend this extension point')
    return name, given.get("weight", 0)


def _disabled(warnings: list[str], key: str, value: object) -> str:
    name: str = mapped(key, value, {"name": _text}, required=("name",))["name"]
    if name in BUILT_IN:
        warnings.append(f"{below(key, 'name')}: plugin {name} is always enabled in this scheduler")
    elif name not in ("*", *_PLUGINS, *NOT_HERE):
        raise BadConfig(below(key, "name"), f'plugin "{name}" does not exist')
    return name


def _plugin_config(key: str, value: object) -> tuple[str, Any]:
    given = mapped(key, value, {"name": _text, "args": lambda _key, args: args}, required=("name",))
    name, args = given["name"], given.get("args") or {}
    if name != "NodeResourcesFit":
        if name not in (*_PLUGINS, *BUILT_IN, *NOT_HERE):
            raise BadConfig(below(key, "name"), f'plugin "{name}" does not exist')
        if not isinstance(args, dict) or set(args) - {"apiVersion", "kind"}:
            raise BadConfig(below(key, "args"), f"arguments of {name} are not supported")
        return name, None
    keys: dict[str, Read] = {
        "apiVersion": one_of(API_VERSION),
        "kind": one_of("NodeResourcesFitArgs"),
        "scoringStrategy": _strategy,
    }
    return name, mapped(below(key, "args"), args, keys).get("scoringStrategy")


def _strategy(key: str, value: object) -> Any:
    keys: dict[str, Read] = {"type": one_of("LeastAllocated", "MostAllocated"), "resources": list_of(_resource)}
    given = mapped(key, value, keys)
    weights = dict(given.get("resources", ((CPU, 1), (MEMORY, 1))))
    return allocation_score(weights, most=given.get("type") == "MostAllocated")


def _resource(key: str, value: object) -> tuple[str, int]:
    given = mapped(key, value, {"name": _text, "weight": between(1, 100)}, required=("name",))
    return given["name"], given.get("weight", 1)


def _list(read_item: Read) -> Read:
    """Reads a list that may be empty."""

    def reading(key: str, value: object) -> Sequence[Any]:
        if not isinstance(value, list):
            raise BadConfig(key, "must be a list")
        return tuple(read_item(f"{key}[{at}]", item) for at, item in enumerate(value))

    return reading


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise BadConfig(key, f"{value!r} must be a name")
    return value
