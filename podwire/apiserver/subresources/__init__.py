"""Subresources that the generic verbs do not handle: binding, eviction, scale, token, …

`find` returns the handler of a subresource; status, finalize and approval use the generic verbs.
"""

from collections.abc import Mapping

from podwire.apiserver.request.verbs import Verb, get, patch, update
from podwire.apiserver.subresources import binding, eviction, kubelet_proxy, pod_parts, proxy, scale

__all__ = ["find"]

_GENERIC: Mapping[str, Verb] = {"get": get, "update": update, "patch": patch}

_GENERIC_NAMES = frozenset({"status", "finalize", "approval"})

_OWN: Mapping[tuple[str, str], Verb] = {
    ("binding", "create"): binding.create,
    ("eviction", "create"): eviction.create,
    ("scale", "get"): scale.get,
    ("scale", "update"): scale.update,
    ("scale", "patch"): scale.patch,
    ("ephemeralcontainers", "get"): get,
    ("ephemeralcontainers", "update"): pod_parts.update,
    ("ephemeralcontainers", "patch"): pod_parts.patch,
    ("resize", "get"): get,
    ("resize", "update"): pod_parts.update,
    ("resize", "patch"): pod_parts.patch,
}

_ON_NODES = frozenset({"log", "exec", "attach", "portforward"})


def find(subresource: str, verb: str) -> Verb | None:
    """Returns the handler of a verb on a subresource; None when there is none."""
    first = subresource.partition("/")[0]
    if first in _GENERIC_NAMES:
        return _GENERIC.get(verb)
    if first == "proxy":
        return proxy.connect
    if first in _ON_NODES:
        return kubelet_proxy.connect
    return _OWN.get((first, verb))
