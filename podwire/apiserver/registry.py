"""Registry of served resources: the built-in ones, and custom ones that come and go."""

from collections.abc import Callable, Iterable

from podwire.kinds.resource import Resource
from podwire.protocols.k8sapi.kinds import Kind


class Registry:
    """Resources by URL words. Custom ones are replaced as a whole when CRDs change; `version` counts that."""

    def __init__(self, builtin: Iterable[Resource]) -> None:
        self._builtin = {_words(resource.kind): resource for resource in builtin}
        self._custom: dict[tuple[str, str, str], Resource] = {}
        self.version = 0
        self.announced: tuple[Kind, ...] = ()
        """Kinds that aggregated API servers serve."""
        self._ends: dict[tuple[str, str, str], set[Callable[[], None]]] = {}

    def find(self, group: str, version: str, resource: str) -> Resource | None:
        words = (group, version, resource)
        return self._builtin.get(words) or self._custom.get(words)

    def builtin(self, group: str, resource: str, version: str = "v1") -> Resource:
        """A built-in resource that the server itself relies on."""
        return self._builtin[group, version, resource]

    def replace_custom(self, resources: Iterable[Resource]) -> None:
        before, self._custom = self._custom, {_words(resource.kind): resource for resource in resources}
        self.version += 1
        for words in before.keys() - self._custom.keys():
            for end in [*self._ends.get(words, ())]:
                end()

    def announce(self, kinds: Iterable[Kind]) -> None:
        self.announced = tuple(kinds)
        self.version += 1

    def on_removal(self, kind: Kind, end: Callable[[], None]) -> Callable[[], None]:
        """Calls `end` when a custom resource is no longer served; returns what undoes that."""
        words = _words(kind)
        self._ends.setdefault(words, set()).add(end)

        def undo() -> None:
            ends = self._ends.get(words, set())
            ends.discard(end)
            if not ends:
                self._ends.pop(words, None)

        return undo

    @property
    def resources(self) -> list[Resource]:
        return [*self._builtin.values(), *self._custom.values()]

    def serves_built_in(self, group: str) -> bool:
        """Returns whether some version of a built-in group is served; the core group has no name."""
        return bool(group) and any(words[0] == group for words in self._builtin)

    def serves_group_version(self, group: str, version: str) -> bool:
        return any(words[:2] == (group, version) for words in (*self._builtin, *self._custom))


def _words(kind: Kind) -> tuple[str, str, str]:
    return (kind.group, kind.version, kind.resource)
