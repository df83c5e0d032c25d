"""Keeps the names and the configuration up to date with the API server."""

import asyncio
import logging
from collections.abc import Callable

from podwire.dns import metrics as names
from podwire.dns.config import Config, read_config
from podwire.dns.limits import Limits
from podwire.dns.metrics import Metrics
from podwire.dns.records import Index, Key
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Deleted, Object, Synced, key_of

_log = logging.getLogger("podwire.dns")

CONFIG_NAMESPACE, CONFIG_NAME = "kube-system", "kube-dns"


def _builtin(api_version: str, kind: str) -> Kind:
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(f"{api_version} {kind}")
    return found


NAMESPACES, SERVICES, CONFIG_MAPS = (_builtin("v1", kind) for kind in ("Namespace", "Service", "ConfigMap"))
SLICES = _builtin("discovery.k8s.io/v1", "EndpointSlice")

Set = Callable[[Key, Object | None], bool]


class Feed:
    """Watches namespaces, Services, EndpointSlices and one ConfigMap; `changed` is called after each change.

    While the API server does not answer, names stay as they were.
    """

    def __init__(
        self,
        api: Client,
        index: Index,
        changed: Callable[[], None],
        configure: Callable[[Config], None],
        metrics: Metrics,
        limits: Limits,
    ) -> None:
        self._api = api
        self._index = index
        self._changed = changed
        self._configure = configure
        self._metrics = metrics
        self._limits = limits
        self._pending = {NAMESPACES, SERVICES, SLICES, CONFIG_MAPS}
        self.synced = asyncio.Event()

    async def run(self) -> None:
        config = Scope(namespace=CONFIG_NAMESPACE, field_selector=f"metadata.name={CONFIG_NAME}")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(NAMESPACES, Scope(metadata_only=True), self._set_namespace))
            group.create_task(self._watch(SERVICES, Scope(), self._index.set_service))
            group.create_task(self._watch(SLICES, Scope(), self._index.set_slice))
            group.create_task(self._watch(CONFIG_MAPS, config, self._set_config))

    async def _watch(self, kind: Kind, scope: Scope, set_: Set) -> None:
        async with self._api.informer(kind, scope) as informer:
            async for change in informer:
                if isinstance(change, Synced):
                    self._pending.discard(kind)
                    if not self._pending:
                        self.synced.set()
                elif set_(key_of(change.object), None if isinstance(change, Deleted) else change.object):
                    self._changed()

    def _set_namespace(self, key: Key, object_: Object | None) -> bool:
        return self._index.set_namespace(key[1], exists=object_ is not None)

    def _set_config(self, _key: Key, object_: Object | None) -> bool:
        data = (object_ or {}).get("data") or {}
        config, errors = read_config(data, self._limits)
        for error in errors:
            self._metrics.counts[names.BAD_CONFIG] += 1
            where = f"configmap {CONFIG_NAMESPACE}/{CONFIG_NAME}"
            _log.warning("DNS setting is ignored", extra={"object": where, "error": error})
        self._configure(config)
        return True
