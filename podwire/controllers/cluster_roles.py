"""Fills in aggregated ClusterRoles: their rules are those of all ClusterRoles that their selectors pick."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from podwire.controllers.context import Context
from podwire.controllers.kinds import CLUSTER_ROLES
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.work_queue import WorkQueue
from podwire.objects.role_aggregation import outdated
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

_ALL = ""
"""The one key of the queue: a role may be a part of any other."""


class RoleAggregation:
    """Compares all roles after a change of one, and writes those whose rules are not what they consist of."""

    name: ClassVar = "clusterrole-aggregation-controller"
    resources: ClassVar = frozenset({resource_of(CLUSTER_ROLES)})

    def __init__(self, context: Context) -> None:
        self._api = context.api
        self._graph = context.graph
        self._queue: WorkQueue[str] = WorkQueue("cluster-roles", self._reconcile)

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:  # noqa: ARG002 - the interface
        if self._graph.complete:
            self._queue.add(_ALL)

    def on_synced(self) -> None:
        self._queue.add(_ALL)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._queue.run()

    async def _reconcile(self, _key: str) -> None:
        rules_by_role = await asyncio.to_thread(_outdated, self._graph.listed(CLUSTER_ROLES))
        for name, rules in rules_by_role.items():
            try:
                await self._api.patch(CLUSTER_ROLES, name, {"rules": rules})
            except ApiError as error:
                if error.code != 404:
                    raise


def _outdated(roles: Sequence[PartialObject]) -> dict[str, list[Object]]:
    """Returns the rules that roles lack, by their names; called in a worker thread, because roles may be large."""
    return outdated({role.name: role.object() for role in roles})
