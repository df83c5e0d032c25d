"""The authorization library: expressions ask whether the user of a request, or a service account, may do something.

Values of these types are plain data; `check` asks the authorizer that `asking` has put in place for the evaluation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import msgspec

from podwire.objects import names
from podwire.protocols.cel.types import (
    AUTHORIZER,
    BOOL,
    DECISION,
    GROUP_CHECK,
    PATH_CHECK,
    RESOURCE_CHECK,
    STRING,
    Function,
    Opaque,
    Type,
)

_ACCOUNTS = "system:serviceaccounts"


class Principal(msgspec.Struct, frozen=True):
    """The variable `authorizer`: somebody whose permissions are checked."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class PathCheck(msgspec.Struct, frozen=True):
    principal: Principal
    path: str


class GroupCheck(msgspec.Struct, frozen=True):
    principal: Principal
    group: str


class ResourceCheck(msgspec.Struct, frozen=True):
    """The variable `authorizer.requestResource`: a resource, on which verbs are checked."""

    principal: Principal
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """A decision, with a reason if there is one."""

    allowed: bool
    reason: str = ""


Ask = Callable[[PathCheck | ResourceCheck, str], Verdict]
"""Returns whether a verb is allowed."""

_ask: ContextVar[Ask] = ContextVar("_ask")


@contextmanager
def asking(ask: Ask) -> Iterator[None]:
    """Evaluations within ask this authorizer. Variables of a thread: evaluations in others are not concerned."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def _path(principal: Principal, path: str) -> PathCheck:
    if not path.strip():
        raise ValueError("path must not be empty")
    return PathCheck(principal, path)


def _account(_principal: Principal, namespace: str, name: str) -> Principal:
    """The user of a service account; as upstream has it, without the group of all authenticated users."""
    if names.dns_subdomain(name):
        raise ValueError("Invalid service account name")
    if names.dns_label(namespace):
        raise ValueError("Invalid service account namespace")
    return Principal(f"system:serviceaccount:{namespace}:{name}", groups=(_ACCOUNTS, f"{_ACCOUNTS}:{namespace}"))


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise ValueError("resource must not be empty")
    return ResourceCheck(check.principal, check.group, resource)


def _with(field: str) -> Callable[[ResourceCheck, str], ResourceCheck]:
    return lambda check, value: msgspec.structs.replace(check, **{field: value})


def _checked(check: PathCheck | ResourceCheck, verb: str) -> Verdict:
    return _ask.get()(check, verb)


Value = TypeVar("Value", Principal, PathCheck, GroupCheck, ResourceCheck, Verdict)


def _opaque(type_: Type, python: type[Value]) -> Opaque:
    return Opaque(
        type_,
        (python,),
        lambda value: msgspec.json.encode(value).decode(),
        lambda text: msgspec.json.decode(text, type=python),
    )


OPAQUE = (
    _opaque(AUTHORIZER, Principal),
    _opaque(PATH_CHECK, PathCheck),
    _opaque(GROUP_CHECK, GroupCheck),
    _opaque(RESOURCE_CHECK, ResourceCheck),
    _opaque(DECISION, Verdict),
)

FUNCTIONS = (
    Function("path", (AUTHORIZER, STRING), PATH_CHECK, _path),
    Function("group", (AUTHORIZER, STRING), GROUP_CHECK, GroupCheck),
    Function("serviceAccount", (AUTHORIZER, STRING, STRING), AUTHORIZER, _account),
    Function("resource", (GROUP_CHECK, STRING), RESOURCE_CHECK, _resource),
    Function("subresource", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, _with("subresource")),
    Function("namespace", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, _with("namespace")),
    Function("name", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, _with("name")),
    Function("fieldSelector", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, _with("field_selector")),
    Function("labelSelector", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, _with("label_selector")),
    Function("check", (PATH_CHECK, STRING), DECISION, _checked),
    Function("check", (RESOURCE_CHECK, STRING), DECISION, _checked),
    Function("allowed", (DECISION,), BOOL, lambda verdict: verdict.allowed),
    Function("reason", (DECISION,), STRING, lambda verdict: verdict.reason),
    # Errors are those of an authorizer that is asked over a network; this server's is not.
    Function("errored", (DECISION,), BOOL, lambda _verdict: False),
    Function("error", (DECISION,), STRING, lambda _verdict: ""),
)
