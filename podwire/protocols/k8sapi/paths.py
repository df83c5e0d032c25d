"""Kubernetes URLs: which resource, in which namespace, which name, which subresource. Pure; used by both sides."""

from urllib.parse import quote, unquote

import msgspec


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a resource URL. The core group is ''."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    """Whether the URL has the old form of a watch: `/api/v1/watch/pods` for `/api/v1/pods?watch=true`."""

    def path(self) -> str:
        """The URL that parses to this target."""
        parts = [root(self.group, self.version), *(["watch"] if self.watch else [])]
        if self.namespace and self.resource != "namespaces":
            parts += ["namespaces", _quoted(self.namespace)]
        parts.append(self.resource)
        if self.name:
            parts.append(_quoted(self.name))
        if self.subresource:
            parts.append(self.subresource)
        return "/".join(parts)


class BadPath(ValueError):
    """A URL that can point at nothing: empty or dotted segments, too many of them."""


def root(group: str, version: str) -> str:
    """The URL prefix of a group and version."""
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def parse(path: str) -> Target | None:
    """The target of a resource URL; None for every other URL (discovery, health, unknown).

    Raises BadPath for a URL under a group and version that can point at no resource.
    """
    segments = path.removeprefix("/").removesuffix("/").split("/")
    if "%" in path:
        segments = [_unquoted(part) for part in segments]
    if "proxy" in segments and segments[0] == "api":
        index = 6 if segments[2] == "namespaces" else 4
        if segments[index : index + 1] == ["proxy"]:
            return _proxy(segments[: index + 1], segments[index + 1 :])
    if segments[0] == "api" and len(segments) > 2:
        group, version, rest = "", segments[1], segments[2:]
    elif segments[0] == "apis" and len(segments) > 3:
        group, version, rest = segments[1], segments[2], segments[3:]
    else:
        return None
    if "%" in path or "\x00" in path or not _FORBIDDEN.isdisjoint(segments):
        _check(segments)
    if rest[0] == "watch" and len(rest) > 1:
        return msgspec.structs.replace(_resource(group, version, rest[1:]), watch=True)
    return _resource(group, version, rest)


def _check(segments: list[str]) -> None:
    for segment in segments:
        if segment in _FORBIDDEN or "/" in segment or "%" in segment or "\x00" in segment:
            raise BadPath(f"invalid path segment {segment!r}")


def _proxy(segments: list[str], below: list[str]) -> Target:
    """The path below a proxy is the backend's: any text but dotted segments, which would leave it."""
    _check(segments)
    backend = "/".join(below)
    if "\x00" in backend or not {".", ".."}.isdisjoint(backend.split("/")):
        raise BadPath(f"invalid path {backend!r} below a proxy")
    target = _resource("", segments[1], segments[2:])
    return msgspec.structs.replace(target, subresource=f"proxy/{backend}" if backend else "proxy")


_FORBIDDEN = frozenset({"", ".", ".."})
NAMESPACE_SUBRESOURCES = ("status", "finalize")


def _resource(group: str, version: str, rest: list[str]) -> Target:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and not (len(rest) == 3 and rest[2] in NAMESPACE_SUBRESOURCES):
            rest = rest[2:]
    resource, name, *below = [*rest, ""] if len(rest) == 1 else rest
    if len(below) > 1 and below[0] != "proxy":
        raise BadPath("too many path segments")
    return Target(
        group=group,
        version=version,
        resource=resource,
        namespace=namespace,
        name=name,
        subresource="/".join(below),
    )


def _unquoted(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise BadPath(f"path segment {segment!r} is not UTF-8") from None


def _quoted(segment: str) -> str:
    return quote(segment, safe="")
