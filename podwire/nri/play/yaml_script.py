"""Reads a script of `podwire nri play` from YAML, strictly. Defaults: one pod, one container, one lifecycle."""

from collections.abc import Callable
from typing import Any

from podwire.nri.play import script as words
from podwire.nri.play.paths import BadPath, parse
from podwire.nri.play.script import (
    ContainerScript,
    Expect,
    PodScript,
    RuntimeScript,
    Script,
    Step,
    Wanted,
)
from podwire.nri.script import At, load, message_at, to_plain
from podwire.protocols.nri import events, methods
from podwire.protocols.nri import nri_pb2 as pb

_TOP = ("runtime", "config", "node", "pods", "register", "steps")
_RUNTIME = ("name", "version", "generation", "registration_timeout", "request_timeout", "synchronize_timeout")
_BESIDE_POD = ("containers", "host_network")
_BESIDE_STEP = ("expect", "resources")
_VERBS = (*words.POD_VERBS, *words.CONTAINER_VERBS, *words.EITHER_VERBS, *words.OTHER_VERBS)
_CALLS = {method.name: method.name for method in methods.PLUGIN}
_ASKS = {method.name: method.name for method in methods.RUNTIME}
_WANTED = ("contains", "absent", "matches", "equals")
_SYNCHRONIZED = ("pods", "containers", "batches")


def read_script(text: str, source: str = "script") -> Script:
    """Raises BadScript."""
    top = load(text, source).mapping(_TOP)
    pods = _pods(top["pods"]) if "pods" in top else usual_pods()
    return Script(
        source=source,
        runtime=_runtime(top["runtime"]) if "runtime" in top else RuntimeScript(),
        config=top["config"].text() if "config" in top else "",
        node=top["node"].number() if "node" in top else 0,
        pods=pods,
        register=_expect(top["register"]) if "register" in top else Expect(),
        steps=_steps(top["steps"], pods) if "steps" in top else _lives(pods),
    )


def _lives(pods: dict[str, PodScript]) -> tuple[Step, ...]:
    return tuple(step for name, pod in pods.items() for step in words.lived(name, list(pod.containers)))


def usual_pods() -> dict[str, PodScript]:
    app = ContainerScript(known=pb.Container(), spec={})
    return {"web": PodScript(described=pb.PodSandbox(), containers={"app": app})}


def _runtime(at: At) -> RuntimeScript:
    keys = at.mapping(_RUNTIME)
    given: dict[str, Any] = {}
    for key, value in keys.items():
        if key == "generation":
            given[key] = value.one_of({words.OLD: words.OLD, words.NEW: words.NEW})
        elif key.endswith("_timeout"):
            given[key] = value.seconds()
        else:
            given[key] = value.text()
    return RuntimeScript(**given)


# Who is there.


def _pods(at: At) -> dict[str, PodScript]:
    return {name: _pod(value) for name, value in at.mapping().items()}


def _pod(at: At) -> PodScript:
    if not at.is_mapping and at.value() is None:
        return PodScript(described=pb.PodSandbox())
    keys = at.mapping()
    containers = keys["containers"].mapping() if "containers" in keys else {}
    return PodScript(
        described=message_at(at, pb.PodSandbox, _BESIDE_POD),
        host_network=keys["host_network"].truth() if "host_network" in keys else False,
        containers={name: _container(value) for name, value in containers.items()},
    )


def _container(at: At) -> ContainerScript:
    if not at.is_mapping and at.value() is None:
        return ContainerScript(known=pb.Container(), spec={})
    keys = at.mapping()
    spec = keys["spec"].value() if "spec" in keys else {}
    if not isinstance(spec, dict):
        raise keys["spec"].fail("what is laid over config.json is keys and values")
    return ContainerScript(known=message_at(at, pb.Container, ("spec",)), spec=spec)


# What happens.


def _steps(at: At, pods: dict[str, PodScript]) -> tuple[Step, ...]:
    return tuple(_step(item, pods) for item in at.items())


def _step(at: At, pods: dict[str, PodScript]) -> Step:
    where = f"{at.source}:{at.node.start_mark.line + 1}"
    if not at.is_mapping:
        verb = at.one_of({name: name for name in ("restart-runtime", "restart-plugin", "disconnect")})
        return Step(verb=verb, where=where)
    keys = at.mapping((*_VERBS, *_BESIDE_STEP))
    verbs = [key for key in keys if key in _VERBS]
    if len(verbs) != 1:
        raise at.fail(f"a step is one of {', '.join(_VERBS)}, and here are {len(verbs)} of them")
    verb, target = verbs[0], keys[verbs[0]]
    return Step(
        verb=verb,
        subject=_subject(verb, target, pods),
        where=where,
        number=_number(verb, target),
        resources=_resources(verb, keys.get("resources")),
        expect=_expect(keys["expect"]) if "expect" in keys else Expect(),
    )


def _subject(verb: str, at: At, pods: dict[str, PodScript]) -> str:
    if verb in words.OTHER_VERBS:
        return ""
    pod, slash, container = at.text().partition("/")
    if pod not in pods:
        raise at.fail(f"unknown pod {pod!r}; known are {', '.join(pods)}")
    if slash and container not in pods[pod].containers:
        raise at.fail(f"pod {pod} has no container {container!r}; it has {', '.join(pods[pod].containers) or 'none'}")
    if verb in words.CONTAINER_VERBS and not slash:
        raise at.fail(f"{verb} is for a container: POD/CONTAINER")
    if verb in words.POD_VERBS and slash:
        raise at.fail(f"{verb} is for a pod, not for a container")
    return at.text()


def _number(verb: str, at: At) -> float:
    if verb == "wait":
        return at.seconds()
    if verb == "big-node":
        return at.number()
    if verb in words.OTHER_VERBS and at.is_mapping and at.mapping(()):
        raise at.fail("nothing can be said about it")
    return 0


def _resources(verb: str, at: At | None) -> pb.LinuxResources | None:
    if at is None:
        return None
    if verb not in ("update", "update-pod"):
        raise at.fail("only update and update-pod are about resources")
    return message_at(at, pb.LinuxResources)


# What is expected.


def _expect(at: At) -> Expect:
    expectations = at.mapping(_EXPECTATIONS)
    return Expect(**{key: _EXPECTATIONS[key](value) for key, value in expectations.items()})


def _names(table: dict[str, str]) -> Callable[[At], tuple[str, ...]]:
    return lambda at: tuple(item.one_of(table) for item in at.items())


def _adjust(at: At) -> dict[str, Any]:
    return to_plain(message_at(at, pb.ContainerAdjustment))


def _updates(at: At) -> list[dict[str, Any]]:
    return [to_plain(message_at(item, pb.ContainerUpdate)) for item in at.items()]


def _synchronized(at: At) -> dict[str, int]:
    return {key: value.number() for key, value in at.mapping(_SYNCHRONIZED).items()}


def _spec(at: At) -> tuple[Wanted, ...]:
    return tuple(_wanted(path, value) for path, value in at.mapping().items())


def _wanted(path: str, at: At) -> Wanted:
    try:
        parse(path)
    except BadPath as error:
        raise at.fail(str(error)) from None
    keys = at.mapping() if at.is_mapping else {}
    if not keys or not set(keys) <= set(_WANTED):
        return Wanted(path=path, equals=at.value())
    if len(keys) != 1:
        raise at.fail(f"one of {', '.join(_WANTED)}")
    [(key, value)] = keys.items()
    if key == "matches":
        return Wanted(path=path, matches=value.expression())
    if key == "absent":
        return Wanted(path=path, absent=value.truth())
    return Wanted(path=path, contains=value.value()) if key == "contains" else Wanted(path=path, equals=value.value())


_EXPECTATIONS: dict[str, Callable[[At], Any]] = {
    "calls": _names(_CALLS),
    "asks": _names(_ASKS),
    "error": At.expression,
    "adjust": _adjust,
    "updates": _updates,
    "spec": _spec,
    "within": At.seconds,
    "synchronized": _synchronized,
    "connected": At.truth,
    "plugin": At.text,
    "subscribes": _names({title: title for title in events.BY_TITLE}),
}
