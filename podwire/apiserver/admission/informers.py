"""Caches of the objects that plugins consult with every write: decoded once, when they change.

A lookup first applies the changes that the store has published since the last one. It therefore sees every write that
this process has answered, and needs no task of its own. Changes wait in the store's queue until somebody looks, so this
is for kinds that rarely change or that are looked up often.
"""

from collections import defaultdict
from collections.abc import Collection

from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, unpack
from podwire.protocols.storage import Change, StorageError, Watch


class ObjectInformer:
    """All objects of one kind, by namespace and name; nobody may change them."""

    def __init__(self, store: Store, stored_as: str) -> None:
        self.prefix = f"{PREFIX}{stored_as}/"
        self._store = store
        self._watch: Watch | None = None
        self._by_namespace: dict[str, dict[str, Object]] = {}

    async def get(self, name: str, namespace: str = "") -> Object | None:
        await self._catch_up()
        return self._by_namespace.get(namespace, {}).get(name)

    async def all(self, namespace: str = "") -> Collection[Object]:
        """Returns the objects of a namespace by name; of a cluster-scoped kind, all."""
        await self._catch_up()
        return self._by_namespace.get(namespace, {}).values()

    async def _catch_up(self) -> None:
        if self._watch is not None:
            try:
                for change in self._watch.drain():
                    self._apply(change)
            except StorageError:  # it fell behind or was compacted while nobody looked
                self._watch = None
        if self._watch is None:
            await self._load()

    async def _load(self) -> None:
        page = await self._store.list(self.prefix)
        if self._watch is not None:  # another request has loaded it meanwhile
            return
        objects: dict[str, dict[str, Object]] = defaultdict(dict)
        for item in page.items:
            namespace, name = self._place(item.key)
            objects[namespace][name] = unpack(item)
        self._by_namespace = dict(objects)
        self._watch = self._store.watch(self.prefix, after=page.revision)

    def _apply(self, change: Change) -> None:
        namespace, name = self._place(change.key)
        objects = {**self._by_namespace.get(namespace, {})}
        objects.pop(name, None)
        if change.item is not None:
            objects[name] = unpack(change.item)
        self._by_namespace[namespace] = dict(sorted(objects.items()))
        if not objects:
            del self._by_namespace[namespace]

    def _place(self, key: str) -> tuple[str, str]:
        namespace, _, name = key.removeprefix(self.prefix).rpartition("/")
        return namespace, name


class Informers:
    """The informers of all plugins; each loads when it is first used."""

    def __init__(self, store: Store) -> None:
        self.limit_ranges = ObjectInformer(store, "limitranges")
        self.quotas = ObjectInformer(store, "resourcequotas")
        self.priority_classes = ObjectInformer(store, "priorityclasses")
        self.storage_classes = ObjectInformer(store, "storageclasses")
        self.ingress_classes = ObjectInformer(store, "ingressclasses")
        self.service_cidrs = ObjectInformer(store, "servicecidrs")
        self.csi_drivers = ObjectInformer(store, "csidrivers")
