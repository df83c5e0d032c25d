"""The OpenAPI definitions of the built-in kinds, read from the installed kubernetes-validate package.

Only the file is used: importing the package costs 90 ms and none of its code is wanted. The 1.6 MB are mapped, not
read: they stay in the page cache, which the kernel may drop. They are split into undecoded definitions (2.2 ms) and
each is decoded when somebody asks for it. A compiled cache on disk was measured against this and left out: there are
but two milliseconds to win.
"""

import importlib.util
import mmap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

VERSION = "1.36.0"
"""The version of Kubernetes, and of kubernetes-validate, to which podwire is pinned."""

_PACKAGE = "kubernetes_validate"
_REF = "#/$defs/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_PACKAGES = {
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
    "apiregistration.k8s.io": "io.k8s.kube-aggregator.pkg.apis.apiregistration",
}
"""The Go packages of groups that are not in `io.k8s.api.<first word of the group>`."""

_EVERYWHERE = {"DeleteOptions", "Status", "WatchEvent"}
"""Kinds of the meta group that every group and version has."""


class Schema(msgspec.Struct, frozen=True):
    """The parts of a definition or property that decoding needs; descriptions stay undecoded."""

    type: str | tuple[str, ...] = ""
    format: str = ""
    ref: str = msgspec.field(default="", name="$ref")
    items: "Schema | None" = None
    values: "Schema | None" = msgspec.field(default=None, name="additionalProperties")
    properties: "dict[str, Schema] | None" = None
    required: frozenset[str] = frozenset()
    merge_key: str = msgspec.field(default="", name="x-kubernetes-patch-merge-key")
    strategy: str = msgspec.field(default="", name="x-kubernetes-patch-strategy")
    list_type: str = msgspec.field(default="", name="x-kubernetes-list-type")
    list_map_keys: tuple[str, ...] = msgspec.field(default=(), name="x-kubernetes-list-map-keys")
    map_type: str = msgspec.field(default="", name="x-kubernetes-map-type")

    @property
    def json_type(self) -> str:
        """The type without the `null` of optional properties; empty for a reference and for any type."""
        return self.type if isinstance(self.type, str) else self.type[0]

    @property
    def target(self) -> str:
        """The definition that is referred to."""
        return self.ref.removeprefix(_REF)


class _File(msgspec.Struct):
    definitions: dict[str, msgspec.Raw] = msgspec.field(name="$defs")


class Definitions:
    """The definitions of one version of Kubernetes, by name."""

    def __init__(self, raw: dict[str, msgspec.Raw]) -> None:
        self._raw = raw
        self._decoder = msgspec.json.Decoder(Schema)

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def schema(self, name: str) -> Schema:
        """Returns the parts of a definition that decoding needs; raises KeyError."""
        return self._decoder.decode(self._raw[name])

    def document(self, name: str) -> dict[str, Any]:
        """Returns all of it, descriptions too; raises KeyError."""
        document: dict[str, Any] = msgspec.json.decode(self._raw[name])
        return document

    def name_of(self, group: str, version: str, kind: str) -> str | None:
        """Returns the definition of a kind."""
        package = _PACKAGES.get(group) or f"io.k8s.api.{group.partition('.')[0] or 'core'}"
        for name in (f"{package}.{version}.{kind}", f"{_META}.{kind}" if kind in _EVERYWHERE else ""):
            if name in self._raw:
                return name
        return None


@cache
def load(version: str = VERSION) -> Definitions:
    """Returns the definitions of a version, read once in a process; raises FileNotFoundError when it is not
    installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {_PACKAGE} is not installed")
    folder = Path(spec.submodule_search_locations[0], "kubernetes-json-schema", f"v{version}-local")
    with (folder / "_definitions.json").open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return Definitions(msgspec.json.decode(content, type=_File).definitions)
