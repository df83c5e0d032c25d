"""What became of each PodRoute and PodMesh, told in its status: on how many pods, which failed, and why.

Every node writes what its own pods say, under its own name; the sums are whoever's turn it is, and since all make the
same sums of the same nodes, they agree in the end.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from podwire.interfaces import Clock
from podwire.nriplugins.network.kinds import CUSTOM
from podwire.nriplugins.network.ports import Api
from podwire.nriplugins.network.resources import Head
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.nriplugins.network.status_report import Report, report_of, status_of
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object, key_of, version_of

_log = logging.getLogger("podwire.nriplugins.network")

BREATH = 0.2
"""Seconds between two rounds of writing: what changes meanwhile is written once."""
LATER = 5.0
"""Seconds until a status is tried again that the server did not take."""

Find = Callable[[Kind, str, str], Object | None]
_KINDS = {each.kind: each for each in CUSTOM}


class Statuses:
    def __init__(self, api: Api, clock: Clock, node: str) -> None:
        self._api, self._clock, self._node = api, clock, node
        self._pods: Callable[[], Iterable[Sandbox]] = tuple
        self._find: Find = lambda _kind, _namespace, _name: None
        self._due: OrderedDict[tuple[Kind, str, str], None] = OrderedDict()
        self._filled = asyncio.Event()

    def look_at(self, pods: Callable[[], Iterable[Sandbox]], find: Find) -> None:
        """Where pods and resources are found."""
        self._pods, self._find = pods, find

    def touch(self, kind: Kind, object_: Object) -> None:
        """The resource changed."""
        self._mark(kind, *key_of(object_))

    def concern(self, heads: Iterable[Head]) -> None:
        """A pod of theirs changed, came or went."""
        for each in heads:
            self._mark(_KINDS[each.kind], each.namespace, each.name)

    def _mark(self, kind: Kind, namespace: str, name: str) -> None:
        self._due[kind, namespace, name] = None
        self._filled.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            await asyncio.sleep(BREATH)
            due, self._due = self._due, OrderedDict()
            failed = [each for each in due if not await self._write(*each)]
            if failed:
                await asyncio.sleep(LATER)
                for each in failed:
                    self._mark(*each)

    async def _write(self, kind: Kind, namespace: str, name: str) -> bool:
        """Whether it needs no other try."""
        object_ = self._find(kind, namespace, name)
        if object_ is None:
            return True
        status = status_of(object_, self._node, self._report(object_), rfc3339(self._clock.wall()))
        if status is None:
            return True
        patch: dict[str, Any] = {"metadata": {"resourceVersion": version_of(object_)}, "status": status}
        try:
            await self._api.patch(kind, name, patch, namespace, subresource="status")
        except ApiError as error:
            if error.code in (404, 409):  # gone, or changed meanwhile: the change that is on its way comes here again
                return True
            _log.info("status refused", extra={"resource": f"{namespace}/{name}", "why": str(error)})
            return error.code < 500
        except ClientError as error:
            _log.debug("status not written yet", extra={"resource": f"{namespace}/{name}", "why": str(error)})
            return False
        return True

    def _report(self, object_: Object) -> Report:
        return report_of(object_, self._pods())
