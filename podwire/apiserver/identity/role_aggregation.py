"""Fills in aggregated ClusterRoles when a server starts; `clusterrole-aggregation-controller` follows later changes."""

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from podwire.apiserver.identity.default_policy import GROUP
from podwire.apiserver.identity.rbac import CLUSTER_ROLES
from podwire.apiserver.identity.users import SYSTEM
from podwire.apiserver.ports import Store
from podwire.apiserver.registry import Registry
from podwire.apiserver.request import offload
from podwire.apiserver.write.field_managers import FieldManager
from podwire.apiserver.write.updates import Updater, Write
from podwire.kinds.stored import Object
from podwire.objects.role_aggregation import outdated
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.storage import Item

_log = logging.getLogger("podwire.apiserver.identity.role_aggregation")

MANAGER = FieldManager("clusterrole-aggregation-controller")


class _Meta(msgspec.Struct, frozen=True):
    name: str
    labels: dict[str, str] = {}


class _Role(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    metadata: _Meta
    rules: list[dict[str, Any]] | None = None
    aggregation_rule: dict[str, list[dict[str, Any]]] | None = None


_read = msgspec.json.Decoder(_Role).decode


def _read_role(item: Item) -> Object | None:
    """Returns the parts of a role that aggregation needs, which are a third of it.

    An object that has not the form of a role is ignored, and reported by the RBAC informer.
    """
    try:
        role: Object = msgspec.to_builtins(_read(item.value))
    except msgspec.MsgspecError:
        return None
    return role


@dataclass(frozen=True, slots=True)
class RoleAggregation:
    """Updates the aggregated ClusterRoles."""

    store: Store
    registry: Registry
    updater: Updater
    _roles: dict[str, Object] = field(default_factory=dict)

    async def reconcile(self) -> None:
        """Updates all aggregated roles once."""
        await self._on_list(list((await self.store.list(CLUSTER_ROLES)).items))

    async def _on_list(self, items: list[Item]) -> None:
        roles = {item.key: await offload.for_size(len(item.value), partial(_read_role, item)) for item in items}
        self._roles.clear()
        self._roles.update({key: role for key, role in roles.items() if role is not None})
        await self._update()

    async def _take(self, key: str, item: Item | None) -> None:
        role = None
        if item is not None:
            role = await offload.for_size(len(item.value), partial(_read_role, item))
        if role is None:
            self._roles.pop(key, None)
        else:
            self._roles[key] = role

    async def _update(self) -> None:
        """Writes the roles whose rules are not what they consist of."""
        for key, rules in outdated(self._roles).items():
            await self._write(key, rules)

    async def _write(self, key: str, rules: list[Object]) -> None:
        name = self._roles[key]["metadata"]["name"]
        write = Write(
            resource=self.registry.builtin(GROUP, "clusterroles"),
            namespace="",
            name=name,
            change=lambda old: {**old, "rules": rules},
            user=SYSTEM,
            field_manager=MANAGER,
            run_policies=False,
        )
        try:
            await self._take(key, await self.updater.update(write))
        except ApiError as error:
            _log.warning("cannot update an aggregated role", extra={"role": name, "error": error.message})
