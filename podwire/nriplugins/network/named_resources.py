"""How a hook reads the resources that a pod names: from the API server if it answers in time, else from the copy."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from podwire.nriplugins.network.informers import NOT_FOUND, Informers
from podwire.nriplugins.network.kinds import MESHES, ROUTES
from podwire.nriplugins.network.metrics import Meter
from podwire.nriplugins.network.ports import Api, Trace
from podwire.nriplugins.network.resources import MESH, Pod, named
from podwire.nriplugins.network.resources import ROUTES as ROUTE_NAMES
from podwire.objects import names
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object, version_of

ANNOTATIONS = {ROUTES: ROUTE_NAMES, MESHES: MESH}
DEADLINE = 0.3
"""Seconds that a hook waits for the API server."""


@dataclass(frozen=True, slots=True)
class Read:
    """What became of a name: the resource, if there is one, and how old it is."""

    kind: Kind
    name: str
    object: Object | None = None
    stale: str = ""
    """Why the copy was taken, and its age; empty for what the API server answered."""


def wanted_by(pod: Pod) -> Iterator[tuple[Kind, str]]:
    """What a pod names. What can be no name is none of a resource, and is not asked for."""
    for kind, annotation in ANNOTATIONS.items():
        for each in named(pod, annotation):
            if not names.dns_subdomain(each):
                yield kind, each


def cached(kind: Kind, name: str, found: Object | None) -> str:
    """What a trace says of a look into the copy."""
    return f"read (cache, rv {version_of(found) if found else '-'}) {kind.resource}/{name}"


class NamedReader:
    """Reads what pods name, all of it at once."""

    def __init__(self, api: Api, watches: Informers, trace: Trace, meter: Meter) -> None:
        self._api, self._watches, self._trace, self._meter = api, watches, trace, meter

    async def read(self, uid: str, pod: Pod) -> list[Read]:
        wanted = list(wanted_by(pod))
        return list(await asyncio.gather(*(self._one(uid, pod.namespace, *each) for each in wanted))) if wanted else []

    async def _one(self, uid: str, namespace: str, kind: Kind, name: str) -> Read:
        try:
            with self._trace.reads(uid, kind.target(namespace, name).path()) as passing:
                async with asyncio.timeout(DEADLINE):
                    found = await self._api.get(kind, name, namespace)
                passing.answered(None, "200")
        except TimeoutError:
            return self._copied(uid, namespace, kind, name, f"no answer within {DEADLINE:g} s")
        except ApiError as error:
            if error.code != NOT_FOUND:
                return self._copied(uid, namespace, kind, name, error.message)
            found = None
        except ClientError as error:
            return self._copied(uid, namespace, kind, name, str(error))
        self._meter.read("api")
        return Read(kind, name, found)

    def _copied(self, uid: str, namespace: str, kind: Kind, name: str, why: str) -> Read:
        self._meter.read("cache")
        found = self._watches.find(kind, namespace, name)
        with self._trace.configures(uid, cached(kind, name, found)):
            return Read(kind, name, found, f"{why}; the copy is {self._watches.age(kind):.0f} s old")
