"""A kind as discovery announces it: names, scope, verbs, subresources. For clients and servers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from podwire.protocols.k8sapi.paths import Target

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Subresource:
    """`kind` and its group and version are empty when the subresource takes the kind itself."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One resource in one version, as discovery announces it."""

    group: str
    version: str
    resource: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    listed_as: str = ""
    """The kind of a list of them, where that is not the kind and `List`."""
    api_version: str = field(init=False, repr=False, compare=False)
    group_resource: tuple[str, str] = field(init=False, repr=False, compare=False)
    """The same for all versions of a kind."""

    def __post_init__(self) -> None:
        """Computed once: every request asks for these, several times."""
        set_field = object.__setattr__
        set_field(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)
        set_field(self, "group_resource", (self.group, self.resource))

    @property
    def list_kind(self) -> str:
        return self.listed_as or f"{self.kind}List"

    def target(self, namespace: str = "", name: str = "", subresource: str = "") -> Target:
        """The URL words of one object of this kind, or of all of them."""
        return Target(
            group=self.group,
            version=self.version,
            resource=self.resource,
            namespace=namespace if self.namespaced else "",
            name=name,
            subresource=subresource,
        )

    def subresource(self, name: str) -> Subresource | None:
        return next((subresource for subresource in self.subresources if subresource.name == name), None)


class Kinds:
    """Kinds, and each by its name."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.all: tuple[Kind, ...] = tuple(kinds)
        self._by_kind: Mapping[tuple[str, str], Kind] = {(kind.api_version, kind.kind): kind for kind in self.all}

    def __getitem__(self, key: tuple[str, str]) -> Kind:
        """Returns a kind by apiVersion and kind. Raises KeyError."""
        return self._by_kind[key]

    def of_kind(self, api_version: str, kind: str) -> Kind | None:
        return self._by_kind.get((api_version, kind))
