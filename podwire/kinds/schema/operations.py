"""The paths of an OpenAPI v3 document, from the table of kinds: where clients look up which options there are."""

from collections.abc import Callable, Iterator
from typing import Any

from podwire.kinds.schema.components import META, reference
from podwire.protocols.k8sapi.kinds import Kind, Subresource

SchemaOf = Callable[[str, str, str], str | None]
"""Group, version and kind to the name of a schema of the document."""

_COLLECTION = {"list": ("get", "list"), "create": ("post", "post"), "deletecollection": ("delete", "deletecollection")}
_OBJECT = {"get": ("get", "get"), "update": ("put", "put"), "patch": ("patch", "patch"), "delete": ("delete", "delete")}
_SUBRESOURCE = {**_OBJECT, "create": ("post", "post")}
"""Verb to HTTP method and `x-kubernetes-action`."""

_CONNECTING = ("attach", "exec", "portforward", "proxy")
"""Subresources that open a connection of their own."""

_NAMES = {"get": "read", "list": "list", "post": "create", "put": "replace", "patch": "patch", "delete": "delete"}
_PATCHES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"
"""kubectl sends what it finds here; custom kinds have no merge keys, so theirs must not name it."""


def _parameter(name: str, kind: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind, "uniqueItems": True}}


_DRY_RUN = _parameter("dryRun", "string", "With All nothing is stored; everything else happens.")
_PRETTY = _parameter("pretty", "string", "Whether the answer is indented.")
_WRITE = [
    _DRY_RUN,
    _parameter("fieldManager", "string", "Who makes this change; up to 128 printable characters."),
    _parameter("fieldValidation", "string", "What unknown and duplicate fields are: Ignore, Warn or Strict."),
]
_DELETE = [
    _DRY_RUN,
    _parameter("gracePeriodSeconds", "integer", "How long the object may take to end; 0 for at once."),
    _parameter("orphanDependents", "boolean", "Superseded by propagationPolicy."),
    _parameter("propagationPolicy", "string", "What becomes of dependents: Background, Foreground or Orphan."),
]
_LIST = [
    _parameter("allowWatchBookmarks", "boolean", "Whether a watch may send bookmarks."),
    _parameter("continue", "string", "Where the page before ended."),
    _parameter("fieldSelector", "string", "Which objects, by their fields."),
    _parameter("labelSelector", "string", "Which objects, by their labels."),
    _parameter("limit", "integer", "How many objects a page has."),
    _parameter("resourceVersion", "string", "As of when."),
    _parameter("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
    _parameter("sendInitialEvents", "boolean", "Whether a watch starts with what there is."),
    _parameter("timeoutSeconds", "integer", "When to end."),
    _parameter("watch", "boolean", "Whether to follow changes."),
]
_PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "get": [],
    "list": _LIST,
    "post": _WRITE,
    "put": _WRITE,
    "patch": [*_WRITE, _parameter("force", "boolean", "Whether to take fields from other managers.")],
    "delete": _DELETE,
    "deletecollection": [*_DELETE, *_LIST[1:8]],
    "connect": [],
}
_IN_PATH = {
    name: {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}
    for name in ("namespace", "name")
}


def paths(kind: Kind, schema_of: SchemaOf, *, custom: bool = False) -> dict[str, Any]:
    """Returns every path of a resource."""
    return dict(_Paths(kind, schema_of, _PATCHES if custom else (*_PATCHES, _STRATEGIC)).all())


class _Paths:
    def __init__(self, kind: Kind, schema_of: SchemaOf, patches: tuple[str, ...]) -> None:
        self._kind = kind
        self._patches = patches
        self._schema_of = schema_of
        self._root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"

    def all(self) -> Iterator[tuple[str, Any]]:
        kind = self._kind
        collection = f"{self._root}/{kind.resource}"
        if kind.namespaced:
            if "list" in kind.verbs:
                yield collection, {"get": self._operation("list", "list", everywhere=True), "parameters": [_PRETTY]}
            collection = f"{self._root}/namespaces/{{namespace}}/{kind.resource}"
        inside = ("namespace",) if kind.namespaced else ()
        yield from self._path(collection, inside, kind.verbs, _COLLECTION)
        item = f"{collection}/{{name}}"
        yield from self._path(item, ("name", *inside), kind.verbs, _OBJECT)
        for subresource in kind.subresources:
            yield from self._path(
                f"{item}/{subresource.name}", ("name", *inside), subresource.verbs, _SUBRESOURCE, subresource
            )

    def _path(
        self,
        path: str,
        inside: tuple[str, ...],
        verbs: tuple[str, ...],
        known: dict[str, tuple[str, str]],
        subresource: Subresource | None = None,
    ) -> Iterator[tuple[str, Any]]:
        operations = {
            known[verb][0]: self._operation(verb, known[verb][1], subresource) for verb in verbs if verb in known
        }
        if operations:
            yield path, {**operations, "parameters": [*(_IN_PATH[part] for part in inside), _PRETTY]}

    def _operation(
        self, verb: str, action: str, subresource: Subresource | None = None, *, everywhere: bool = False
    ) -> dict[str, Any]:
        kind = self._kind
        group, version, name = kind.group, kind.version, kind.kind
        if subresource is not None and subresource.kind:
            group, version, name = subresource.group, subresource.version, subresource.kind
        if subresource is not None and subresource.name in _CONNECTING:
            action = "connect"
        operation = {
            "operationId": self._operation_id(verb, subresource, everywhere=everywhere),
            "tags": [_camel(kind.group or "core") + "_" + kind.version],
            "parameters": _PARAMETERS[action],
            "responses": _responses(action, self._answer(verb, self._schema_of(group, version, name))),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": name},
        }
        body = self._body(action, self._schema_of(group, version, name))
        if body:
            operation["requestBody"] = body
        return operation

    def _operation_id(self, verb: str, subresource: Subresource | None, *, everywhere: bool) -> str:
        kind = self._kind
        method, _ = {**_COLLECTION, **_SUBRESOURCE}[verb]
        word = _NAMES[verb] if verb in ("list", "get") else _NAMES[method]
        if verb == "deletecollection":
            word = "deleteCollection"
        group = _camel(kind.group.removesuffix(".k8s.io") or "core")
        scope = "Namespaced" if kind.namespaced and not everywhere else ""
        sub = _camel(subresource.name) if subresource else ""
        name = f"{word}{group[0].upper()}{group[1:]}{kind.version.capitalize()}{scope}{kind.kind}{sub}"
        return f"{name}ForAllNamespaces" if everywhere else name

    def _answer(self, verb: str, schema: str | None) -> str | None:
        if verb in ("delete", "deletecollection"):
            return f"{META}.Status"
        return f"{schema}List" if verb == "list" and schema else schema

    def _body(self, action: str, schema: str | None) -> dict[str, Any]:
        if action in ("delete", "deletecollection"):
            return {"content": _media(("*/*",), f"{META}.DeleteOptions")}
        if action == "patch":
            return {"required": True, "content": _media(self._patches, f"{META}.Patch")}
        if action in ("post", "put") and schema:
            return {"required": True, "content": _media(("*/*",), schema)}
        return {}


_MORE = {
    "post": ("201", "202"),
    "put": ("201",),
    "patch": ("201",),
    "delete": ("202",),
}
"""Other codes of success, by action."""
_WORDS = {"200": "OK", "201": "Created", "202": "Accepted"}


def _responses(action: str, schema: str | None) -> dict[str, Any]:
    codes = ("200", *_MORE.get(action, ()))
    return {**{code: _content(_WORDS[code], schema) for code in codes}, "401": {"description": "Unauthorized"}}


def _content(description: str, schema: str | None) -> dict[str, Any]:
    if schema is None:
        return {"description": description}
    return {"description": description, "content": _media(("application/json",), schema)}


def _media(types: tuple[str, ...], schema: str) -> dict[str, Any]:
    return {type_: {"schema": reference(schema)} for type_ in types}


def _camel(words: str) -> str:
    first, *rest = words.replace("-", ".").split(".")
    return first + "".join(parameter.capitalize() for parameter in rest)
