"""Reads the resources that a pod names: from the API server if it answers in time, else from the cache."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from podwire.nriplugins.network.informers import NOT_FOUND, Informers
from podwire.nriplugins.network.kinds import MESHES, ROUTES
from podwire.nriplugins.network.metrics import Meter
from podwire.nriplugins.network.ports import DEFAULT_LIMITS, Limits, Trace
from podwire.nriplugins.network.resources import MESH, Pod, named
from podwire.nriplugins.network.resources import ROUTES as ROUTE_NAMES
from podwire.objects import names
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object, version_of

ANNOTATIONS = {ROUTES: ROUTE_NAMES, MESHES: MESH}


@dataclass(frozen=True, slots=True)
class Read:
    """One name: the resource, if it exists, and how old it is."""

    kind: Kind
    name: str
    object: Object | None = None
    stale: str = ""
    """Why the cache was used, and its age; empty for an answer of the API server."""


def named_by(pod: Pod) -> Iterator[tuple[Kind, str]]:
    """The resources that a pod names; invalid names are skipped."""
    for kind, annotation in ANNOTATIONS.items():
        for name in named(pod, annotation):
            if not names.dns_subdomain(name):
                yield kind, name


def cached(kind: Kind, name: str, object_: Object | None) -> str:
    """The text by which a trace shows a read from the cache."""
    return f"read (cache, rv {version_of(object_) if object_ else '-'}) {kind.resource}/{name}"


class NamedReader:
    """Reads all resources that a pod names concurrently."""

    def __init__(
        self, api: Client, informers: Informers, trace: Trace, meter: Meter, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._deadline = limits.read
        self._api, self._informers, self._trace, self._meter = api, informers, trace, meter

    async def read(self, uid: str, pod: Pod) -> list[Read]:
        references = list(named_by(pod))
        return (
            list(await asyncio.gather(*(self._one(uid, pod.namespace, *reference) for reference in references)))
            if references
            else []
        )

    async def _one(self, uid: str, namespace: str, kind: Kind, name: str) -> Read:
        try:
            with self._trace.reads(uid, kind.target(namespace, name).path()) as passing:
                async with asyncio.timeout(self._deadline):
                    object_ = await self._api.get(kind, name, namespace)
                passing.answered(None, "200")
        except TimeoutError:
            return self._from_cache(uid, namespace, kind, name, f"no answer within {self._deadline:g} s")
        except ApiError as error:
            if error.code != NOT_FOUND:
                return self._from_cache(uid, namespace, kind, name, error.message)
            object_ = None
        except ClientError as error:
            return self._from_cache(uid, namespace, kind, name, str(error))
        self._meter.read("api")
        return Read(kind, name, object_)

    def _from_cache(self, uid: str, namespace: str, kind: Kind, name: str, why: str) -> Read:
        self._meter.read("cache")
        object_ = self._informers.find(kind, namespace, name)
        with self._trace.configures(uid, cached(kind, name, object_)):
            return Read(kind, name, object_, f"{why}; the cache is {self._informers.age(kind):.0f} s old")
