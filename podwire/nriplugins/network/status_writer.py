"""Writes the status of PodRoutes and PodMeshes: on how many pods they are applied, on which they failed, and why.

Every node writes an entry under its own name. The sums are written by each node; because all compute the same sums from
the same entries, they converge.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from podwire.interfaces import Clock
from podwire.nriplugins.network.kinds import CUSTOM
from podwire.nriplugins.network.ports import DEFAULT_LIMITS, Limits
from podwire.nriplugins.network.resources import Head
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.nriplugins.network.status_report import report_of, status_of
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object, key_of, version_of

_log = logging.getLogger("podwire.nriplugins.network")

Find = Callable[[Kind, str, str], Object | None]
_KINDS = {kind.kind: kind for kind in CUSTOM}


class Statuses:
    def __init__(self, api: Client, clock: Clock, node: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self._api, self._clock, self._node, self._limits = api, clock, node, limits
        self._pods: Callable[[], Iterable[Sandbox]] = tuple
        self._find: Find = lambda _kind, _namespace, _name: None
        self._due: OrderedDict[tuple[Kind, str, str], None] = OrderedDict()
        self._filled = asyncio.Event()

    def look_up_in(self, pods: Callable[[], Iterable[Sandbox]], find: Find) -> None:
        """Sets where pods and resources are looked up."""
        self._pods, self._find = pods, find

    def touch(self, kind: Kind, object_: Object) -> None:
        """A resource changed."""
        self._mark(kind, *key_of(object_))

    def concern(self, heads: Iterable[Head]) -> None:
        """A pod that they select changed, started or ended."""
        for head in heads:
            self._mark(_KINDS[head.kind], head.namespace, head.name)

    def _mark(self, kind: Kind, namespace: str, name: str) -> None:
        self._due[kind, namespace, name] = None
        self._filled.set()

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            await asyncio.sleep(self._limits.status_debounce)
            due, self._due = self._due, OrderedDict()
            failed = [write for write in due if not await self._write(*write)]
            if failed:
                await asyncio.sleep(self._limits.status_retry)
                for write in failed:
                    self._mark(*write)

    async def _write(self, kind: Kind, namespace: str, name: str) -> bool:
        """Returns False when it has to be retried."""
        object_ = self._find(kind, namespace, name)
        if object_ is None:
            return True
        status = status_of(object_, self._node, report_of(object_, self._pods()), rfc3339(self._clock.wall()))
        if status is None:
            return True
        patch: dict[str, Any] = {"metadata": {"resourceVersion": version_of(object_)}, "status": status}
        try:
            await self._api.patch(kind, name, patch, namespace, subresource="status")
        except ApiError as error:
            if error.code in (404, 409):  # deleted, or changed: the watch reports the change, and it is written then
                return True
            _log.info(
                "API server rejected resource status", extra={"resource": f"{namespace}/{name}", "error": str(error)}
            )
            return error.code < 500
        except ClientError as error:
            _log.debug(
                "cannot write resource status yet", extra={"resource": f"{namespace}/{name}", "error": str(error)}
            )
            return False
        return True
