"""Routes of the kubelet's server. Pure."""

from dataclasses import dataclass
from urllib.parse import unquote

from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import ApiError, Reason, method_not_allowed


@dataclass(frozen=True, slots=True)
class Target:
    """A container as named by a path."""

    namespace: str
    pod: str
    container: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The name of the handler, and its target."""

    answer: str
    target: Target = Target("", "")


_PLAIN = {
    "/healthz": Route(answer="healthz"),
    "/pods": Route(answer="pods"),
    "/configz": Route(answer="configz"),
    "/metrics": Route(answer="metrics"),
    "/metrics/cadvisor": Route(answer="cadvisor"),
    "/metrics/probes": Route(answer="probes"),
    "/metrics/resource": Route(answer="resources"),
    "/stats/summary": Route(answer="summary"),
}
_READ, _TALK = ("GET",), ("GET", "POST")
_OF_CONTAINERS = {"containerLogs": ("logs", _READ), "exec": ("exec", _TALK), "attach": ("attach", _TALK)}
_OF_PODS = {"portForward": ("port_forward", _TALK)}


_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_RIGHTS = {
    "stats": ("stats",),
    "metrics": ("metrics",),
    "logs": ("log",),
    "checkpoint": ("checkpoint",),
    "statusz": ("statusz",),
    "pods": ("pods", "proxy"),
    "runningpods": ("pods", "proxy"),
    "healthz": ("healthz", "proxy"),
    "configz": ("configz", "proxy"),
    "flagz": ("configz",),
}
_ACTING = ("exec", "attach", "portForward", "run")
"""Paths on which a GET acts as well: a WebSocket begins with one."""


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on subresources of the node; each of them suffices."""

    verb: str
    subresources: tuple[str, ...]


def right_of(request: Request) -> Right:
    """The right that a request needs, also one for a path that does not exist.

    Running a command needs `create` by whichever method. The stock kubelet is content with `get` on nodes/proxy for a
    WebSocket, which monitoring often has.
    """
    first = unquote(request.path.lstrip("/").partition("/")[0])
    verb = "create" if first in _ACTING else _VERBS.get(request.method, request.method.lower())
    return Right(verb, _RIGHTS.get(first, ("proxy",)))


def find(request: Request) -> Route:
    """Raises ApiError: 404 for an unknown path, 405 for a wrong method."""
    path = request.path.rstrip("/") or "/"
    if route := _PLAIN.get(path):
        return _with(request, _READ, route)
    first, *names = [unquote(part) for part in path.lstrip("/").split("/")]
    if first in _OF_CONTAINERS and (target := _container(names)):
        answer, methods = _OF_CONTAINERS[first]
        return _with(request, methods, Route(answer=answer, target=target))
    if first in _OF_PODS and (target := _pod(names)):
        answer, methods = _OF_PODS[first]
        return _with(request, methods, Route(answer=answer, target=target))
    raise ApiError(Reason.NOT_FOUND, "404 page not found")


def _with(request: Request, methods: tuple[str, ...], route: Route) -> Route:
    if request.method not in methods:
        raise method_not_allowed()
    return route


def _container(names: list[str]) -> Target | None:
    match names:
        case [namespace, pod, container] if all(names):
            return Target(namespace, pod, container)
        case [namespace, pod, uid, container] if all(names):
            return Target(namespace, pod, container, uid)
    return None


def _pod(names: list[str]) -> Target | None:
    match names:
        case [namespace, pod] if all(names):
            return Target(namespace, pod)
        case [namespace, pod, uid] if all(names):
            return Target(namespace, pod, uid=uid)
    return None
