"""The controllers of bootstrap tokens: one signs `kube-public/cluster-info` with each, one deletes expired ones.

Only metadata of Secrets is kept: those with the name of a token are read when one of them changes.
"""

import asyncio
import logging
from typing import ClassVar

from podwire.controllers.context import Context
from podwire.controllers.kinds import CONFIG_MAPS, SECRETS
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.timers import Timers
from podwire.controllers.work_queue import WorkQueue
from podwire.protocols.k8sapi.bootstrap_tokens import (
    INFO_NAME,
    INFO_NAMESPACE,
    NAME_PREFIX,
    NAMESPACE,
    BadToken,
    TokenRecord,
    read_secret,
    signed_info,
)
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)


def is_token(seen: PartialObject) -> bool:
    return seen.resource == resource_of(SECRETS) and seen.namespace == NAMESPACE and seen.name.startswith(NAME_PREFIX)


class _TokenReader:
    """Reads tokens by the names that the graph has."""

    def __init__(self, context: Context) -> None:
        self.api, self.graph, self.clock = context.api, context.graph, context.clock

    async def get(self, kind: Kind, name: str, namespace: str) -> Object | None:
        try:
            return await self.api.get(kind, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    async def record(self, name: str) -> TokenRecord | None:
        """Returns None for a Secret that is gone, or not a valid token: the API server does not accept it either."""
        secret = await self.get(SECRETS, name, NAMESPACE)
        if secret is None or secret["metadata"].get("deletionTimestamp"):
            return None
        try:
            return read_secret(secret)
        except BadToken as error:
            log.warning("ignored invalid bootstrap token", extra={"secret": name, "error": str(error)})
            return None


class BootstrapSigner(_TokenReader):
    """Keeps one signature in `cluster-info` for each token that may sign."""

    name: ClassVar[str] = "bootstrap-signer-controller"
    resources: ClassVar = frozenset(map(resource_of, (SECRETS, CONFIG_MAPS)))

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._queue: WorkQueue[str] = WorkQueue("bootstrap-signer", self._sign, workers=1)

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None or not self.graph.complete:
            return
        is_info = latest.resource == resource_of(CONFIG_MAPS) and (latest.namespace, latest.name) == (
            INFO_NAMESPACE,
            INFO_NAME,
        )
        if is_info or is_token(latest):
            self._queue.add(INFO_NAME)

    def on_synced(self) -> None:
        self._queue.add(INFO_NAME)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._queue.run()

    async def _sign(self, _name: str) -> None:
        info = await self.get(CONFIG_MAPS, INFO_NAME, INFO_NAMESPACE)
        if info is None:
            return
        names = sorted(seen.name for seen in self.graph.listed(SECRETS, NAMESPACE) if is_token(seen))
        records = [await self.record(name) for name in names]
        now = self.clock.wall()
        signing = [row for row in records if row is not None and "signing" in row.usages and not row.is_expired(now)]
        data = signed_info(info.get("data") or {}, signing)
        if data == (info.get("data") or {}):
            return
        await self.api.replace({**info, "data": data})
        log.info("cluster-info was signed", extra={"tokens": len(signing)})


class TokenCleaner(_TokenReader):
    """Deletes tokens when they expire."""

    name: ClassVar[str] = "token-cleaner-controller"
    resources: ClassVar = frozenset({resource_of(SECRETS)})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._queue: WorkQueue[str] = WorkQueue("token-cleaner", self._clean, workers=1)
        self._timers: Timers[str] = Timers(context.clock, self._queue.add)

    def on_change(self, _before: PartialObject | None, now: PartialObject | None) -> None:
        if now is not None and is_token(now) and self.graph.complete:
            self._queue.add(now.name)

    def on_synced(self) -> None:
        for seen in self.graph.listed(SECRETS, NAMESPACE):
            if is_token(seen):
                self._queue.add(seen.name)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._queue.run())
            parts.create_task(self._timers.run())

    async def _clean(self, name: str) -> None:
        secret = await self.get(SECRETS, name, NAMESPACE)
        record = await self.record(name) if secret is not None else None
        if secret is None or record is None or record.expires is None:
            return
        left = record.expires - self.clock.wall()
        if left > 0:
            self._timers.set(name, self._timers.now() + left)
            return
        try:
            await self.api.delete(SECRETS, name, NAMESPACE, uid=secret["metadata"]["uid"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise
        else:
            log.info("expired bootstrap token was deleted", extra={"secret": name})
