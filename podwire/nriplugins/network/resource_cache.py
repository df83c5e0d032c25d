"""PodRoutes and PodMeshes, parsed once per change and not once per pod."""

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from podwire.nriplugins.network import mesh, routes
from podwire.nriplugins.network.kinds import MESHES, ROUTES
from podwire.nriplugins.network.mesh import PodMesh
from podwire.nriplugins.network.named_resources import Read
from podwire.nriplugins.network.resources import Broken, Head
from podwire.nriplugins.network.routes import PodRoute
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object, key_of

R = TypeVar("R")


class Resources(NamedTuple):
    """The resources of one namespace."""

    routes: tuple[PodRoute | Broken, ...] = ()
    meshes: tuple[PodMesh | Broken, ...] = ()

    def heads(self) -> Iterable[Head]:
        return (resource.head for resource in (*self.routes, *self.meshes))


class _KindCache(Generic[R]):
    """The resources of one kind, by namespace, then by name."""

    def __init__(self, kind: Kind, read: Callable[[Object], R]) -> None:
        self._kind, self._read = kind, read
        self._all: dict[str, dict[str, R]] = {}

    def put(self, object_: Object) -> bool:
        namespace, name = key_of(object_)
        known, now = self._all.setdefault(namespace, {}), self._read(object_)
        changed = known.get(name) != now
        known[name] = now
        return changed

    def remove(self, object_: Object) -> None:
        namespace, name = key_of(object_)
        self._all.get(namespace, {}).pop(name, None)

    def of(self, namespace: str, reads: Iterable[Read]) -> tuple[R, ...]:
        resources = self._all.get(namespace, {})
        if own := [read for read in reads if read.kind is self._kind]:
            fresh = {read.name: self._read(read.object) for read in own if read.object is not None}
            names = {read.name for read in own}
            resources = {name: resource for name, resource in resources.items() if name not in names} | fresh
        return tuple(resources.values())

    def __len__(self) -> int:
        return sum(map(len, self._all.values()))


class ResourceCache:
    def __init__(self) -> None:
        self._routes = _KindCache[PodRoute | Broken](ROUTES, routes.read)
        self._meshes = _KindCache[PodMesh | Broken](MESHES, mesh.read)

    def put(self, kind: Kind, object_: Object) -> bool:
        """Returns whether its spec changed; a change of its status does not count."""
        return (self._routes if kind is ROUTES else self._meshes).put(object_)

    def remove(self, kind: Kind, object_: Object) -> None:
        (self._routes if kind is ROUTES else self._meshes).remove(object_)

    def of(self, namespace: str, reads: Iterable[Read] = ()) -> Resources:
        """The resources of a namespace; `reads`, which are newer, replace cached ones."""
        fresh = list(reads)
        return Resources(self._routes.of(namespace, fresh), self._meshes.of(namespace, fresh))

    def counts(self) -> dict[str, int]:
        return {ROUTES.kind: len(self._routes), MESHES.kind: len(self._meshes)}
