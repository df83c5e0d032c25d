"""Runs the controllers inside the API server's process.

They call the server like any other client, but without a socket, and they subscribe to the whole store once instead of
watching each kind.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from podwire import controllers
from podwire.apiserver import Assembled
from podwire.apiserver.identity.legacy_tokens import LegacyTokenSigner
from podwire.apiserver.identity.request_signing import RequestSigner
from podwire.apiserver.ports import Store
from podwire.apiserver.registry import Registry
from podwire.cluster import tracing
from podwire.cluster.loopback import LoopbackHttp
from podwire.controllers.leader_election import Election, LostLease
from podwire.controllers.metadata import PartialObject, from_json
from podwire.controllers.ports import Absent, Complete, Notify, Present
from podwire.controllers.registry import ALL
from podwire.kinds.resource import PREFIX
from podwire.linux.values import Network
from podwire.objects.pod_networks import PodNetwork
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.storage import Gone, Item, SlowWatcher, StorageError
from podwire.trace.participants import API_SERVER
from podwire.transports.tapped_http import tapped_handler

_log = logging.getLogger("podwire.controllers")

IDENTITY = Certificate("system:podwire:controllers")

RESTART_SECONDS = 1.0
"""Delay before controllers are restarted after a failure."""

RETRY_SECONDS = 1.0
"""Delay before a store that failed is asked again."""

BATCH = 500
"""Objects that are delivered before other tasks run."""


async def run_in_process(
    assembled: Assembled,
    names: frozenset[str] = ALL,
    election: Election | None = None,
    run: Callable[[Assembled, frozenset[str], Election | None], Awaitable[None]] | None = None,
    restart_seconds: float = RESTART_SECONDS,
    balancer_pool: Sequence[Network] = (),
    pod_networks: Sequence[PodNetwork] = (),
) -> None:
    """Works until cancelled. A controller that fails is logged and restarted; the API server goes on."""
    while True:
        try:
            await (run or partial(_run, balancer_pool=balancer_pool, pod_networks=pod_networks))(
                assembled, names, election
            )
        except* LostLease as lost:
            _log.warning("controllers stopped leading", extra={"error": str(lost.exceptions[0])})
        except* Exception:  # noqa: BLE001 - whatever failed, the server goes on
            _log.exception("controllers failed and are restarted")
        await asyncio.sleep(restart_seconds)


async def _run(
    assembled: Assembled,
    names: frozenset[str],
    election: Election | None,
    balancer_pool: Sequence[Network],
    pod_networks: Sequence[PodNetwork],
) -> None:
    engine = assembled.engine
    handler = tapped_handler(assembled.server.handle, tracing.tap(API_SERVER), API_SERVER)
    client = Client(LoopbackHttp(handler, IDENTITY, "podwire-controllers"))
    feed = StoreFeed(engine.store, engine.registry)
    root_ca = assembled.pki.authority_pem.decode()
    await controllers.run(
        client,
        feed,
        engine.clock,
        root_ca=root_ca,
        names=names,
        election=election,
        signer=RequestSigner(assembled.pki),
        token_signer=LegacyTokenSigner(assembled.pki.account_key),
        balancer_pool=balancer_pool,
        pod_networks=pod_networks,
    )


class StoreFeed:
    """Delivers the content of the store and every change to it: metadata, and the stored bytes of some kinds."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._kinds: dict[str, Kind] = {}
        self._kinds_version = -1
        self._known: dict[str, PartialObject] = {}
        self._complete = False
        self._whole: frozenset[tuple[str, str]] = frozenset()

    async def follow(self, notify: Notify, whole: frozenset[tuple[str, str]] = frozenset()) -> None:
        """Delivers everything, until cancelled. When the log cannot be followed, it lists again and delivers the
        differences."""
        self._whole = whole
        while True:
            try:
                await self._watch_changes(await self._list_all(notify), notify)
            except (Gone, SlowWatcher):
                continue
            except StorageError as error:
                _log.warning("cannot watch the store", extra={"error": str(error)})
                await asyncio.sleep(RETRY_SECONDS)

    async def _list_all(self, notify: Notify) -> int:
        page = await self._store.list(PREFIX)
        for key in self._known.keys() - {item.key for item in page.items}:
            notify(Absent(self._known.pop(key)))
        for count, item in enumerate(page.items, 1):
            self._on_item(item, notify)
            if not count % BATCH:
                await asyncio.sleep(0)
        if not self._complete:
            self._complete = True
            notify(Complete())
        return page.revision

    async def _watch_changes(self, after: int, notify: Notify) -> None:
        with contextlib.closing(self._store.watch(PREFIX, after=after)) as watch:
            while True:
                for change in await watch.next():
                    if change.item is not None:
                        self._on_item(change.item, notify)
                    elif (known := self._known.pop(change.key, None)) is not None:
                        notify(Absent(known))

    def _on_item(self, item: Item, notify: Notify) -> None:
        kind = self._kind_at(item.key)
        known = self._known.get(item.key)
        if kind is None or (known is not None and known.metadata.resource_version == str(item.revision)):
            return
        seen = from_json(kind, item.value, str(item.revision), whole=kind.group_resource in self._whole)
        if known is not None and known.uid != seen.uid:
            notify(Absent(known))
        self._known[item.key] = seen
        notify(Present(seen))

    def _kind_at(self, key: str) -> Kind | None:
        """Returns the kind whose objects are stored under the first segment of a key, or under its first two."""
        if self._kinds_version != self._registry.version:
            resources = reversed(self._registry.resources)  # the first of several versions wins
            self._kinds = {resource.prefix: resource.kind for resource in resources if "delete" in resource.kind.verbs}
            self._kinds_version = self._registry.version
        first, _, rest = key.removeprefix(PREFIX).partition("/")
        second = rest.partition("/")[0]
        return self._kinds.get(f"{PREFIX}{first}/") or self._kinds.get(f"{PREFIX}{first}/{second}/")
