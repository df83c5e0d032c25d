"""The kinds that the server has, asked for again when custom ones come or go."""

import asyncio
from collections.abc import Iterable

from podwire.controllers.ports import Api
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind, Kinds


def builtin(api_version: str, kind: str) -> Kind:
    """A built-in kind that a controller is about."""
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(f"{api_version} {kind}")
    return found


NAMESPACES = builtin("v1", "Namespace")
PODS = builtin("v1", "Pod")
CONFIG_MAPS = builtin("v1", "ConfigMap")
SERVICE_ACCOUNTS = builtin("v1", "ServiceAccount")
EVENTS = builtin("v1", "Event")
NODES = builtin("v1", "Node")
LEASES = builtin("coordination.k8s.io/v1", "Lease")
CLAIMS = builtin("resource.k8s.io/v1", "ResourceClaim")
TEMPLATES = builtin("resource.k8s.io/v1", "ResourceClaimTemplate")
SLICES = builtin("resource.k8s.io/v1", "ResourceSlice")
TAINT_RULES = builtin("resource.k8s.io/v1beta2", "DeviceTaintRule")
DEFINITIONS = builtin("apiextensions.k8s.io/v1", "CustomResourceDefinition")


class KnownKinds:
    """What discovery says, kept until somebody says that it may have changed."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: Kinds | None = None
        self._asking = asyncio.Lock()
        self._age = 0

    def stale(self) -> None:
        self._known = None
        self._age += 1

    async def all(self) -> tuple[Kind, ...]:
        """Every kind in every version, in the server's order of preference."""
        return (await self._kinds()).all

    async def find(self, api_version: str, kind: str) -> Kind | None:
        return (await self._kinds()).of_kind(api_version, kind)

    async def _kinds(self) -> Kinds:
        async with self._asking:
            if self._known is not None:
                return self._known
            age = self._age
            found = Kinds(await self._api.discover())
            if age == self._age:  # else it changed while we asked
                self._known = found
            return found


_SAME_OBJECTS = frozenset({("events.k8s.io", "events")})
"""Resources that show what another one holds."""


def preferred(kinds: Iterable[Kind]) -> list[Kind]:
    """One version of each kind that can be listed and deleted; the first is the one the server prefers."""
    chosen: dict[tuple[str, str], Kind] = {}
    for each in kinds:
        if {"list", "delete"} <= set(each.verbs) and (each.group, each.resource) not in _SAME_OBJECTS:
            chosen.setdefault((each.group, each.resource), each)
    return list(chosen.values())
