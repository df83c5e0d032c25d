"""A gRPC service as a table of methods, from which a server and a client are built alike.

A handler is what answers one method, by the method's bare name: `handlers = {"Version": …, "GetContainerEvents": …}`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

MAX_MESSAGE = 16 * 1024 * 1024
"""Bytes in one message, both ways; the limit that kubelets set."""

Asked = TypeVar("Asked", bound=Message)
Answered = TypeVar("Answered", bound=Message)


@dataclass(frozen=True, slots=True)
class Unary(Generic[Asked, Answered]):
    """One request, one response."""

    service: str
    name: str
    request: type[Asked]
    response: type[Answered]
    uncancelled: bool = False
    """Whether a server completes the call although its caller gives up: half of it would leave orphans. The caller gets
    no result; an error is logged. A server that stops waits for the call."""

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


@dataclass(frozen=True, slots=True)
class ServerStream(Generic[Asked, Answered]):
    """One request, any number of responses, for as long as both sides like."""

    service: str
    name: str
    request: type[Asked]
    response: type[Answered]

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


Method = Unary[Any, Any] | ServerStream[Any, Any]

UnaryHandler = Callable[[Any], Awaitable[Message]]
StreamHandler = Callable[[Any], AsyncIterator[Message]]
Handler = UnaryHandler | StreamHandler


class BadTable(ValueError):
    """A table of methods and a set of handlers that do not fit; says which name is wrong."""


def matched(table: Iterable[Method], handlers: Mapping[str, Handler]) -> dict[str, tuple[Method, Handler | None]]:
    """Each method by its path, with its handler if there is one. Raises BadTable.

    A handler stands under its method's name, or under its path where several services have a method of that name.
    """
    methods = tuple(table)
    names = [method.name for method in methods]
    paths = [method.path for method in methods]
    by_path = {method.name for method in methods if method.path in handlers}
    twice = sorted({path for path in paths if paths.count(path) > 1})
    twice += sorted({name for name in names if names.count(name) > 1 and name not in by_path})
    if twice:
        raise BadTable(f"{', '.join(twice)}: in the table more than once, so a handler's name does not tell which")
    if unknown := sorted(set(handlers) - set(names) - set(paths)):
        raise BadTable(f"{', '.join(unknown)}: a handler for a method that is not in the table")
    return {method.path: (method, handlers.get(method.path) or handlers.get(method.name)) for method in methods}
