"""Aggregated API servers: requests for the groups of an APIService are forwarded to its Service.

The user of a request is authenticated and authorized here, and named to the other server by headers, which it believes
because of the client certificate of the front proxy (ConfigMap kube-system/extension-apiserver-authentication). The
user's own credentials are not forwarded. An APIService is Available while its server answers discovery; its resources
are announced from what it said last. Its OpenAPI v3 document is listed beside our own and forwarded; the part of its v2
document that describes its group and version is merged into ours.
"""

import asyncio
import logging
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from podwire.apiserver.engine import Engine
from podwire.apiserver.identity.users import MASTERS, SYSTEM, User
from podwire.apiserver.ports import AggregatedServer, AggregatedServers, Unreachable
from podwire.apiserver.read.informer import follow
from podwire.apiserver.request import offload
from podwire.apiserver.service_endpoints import SERVICES, SLICES, ServiceEndpoints
from podwire.apiserver.write.updates import Write
from podwire.kinds.builtin.small import LOCAL_MESSAGE, LOCAL_REASON
from podwire.kinds.policies.webhook import client_config_of
from podwire.kinds.schema import OpenApi
from podwire.kinds.schema.openapi import other_part
from podwire.kinds.stored import Object, unpack
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.kinds import Kind, Subresource
from podwire.protocols.k8sapi.server_side import Answer, Request, Response
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.storage import Change, Item, StorageError

_log = logging.getLogger("podwire.apiserver.aggregation")

DOCUMENT_SECONDS = 60.0
"""Between two looks at the OpenAPI v2 document of a server whose v3 document did not change."""
CHECK_SECONDS = 10.0
"""Between two checks of all servers; changes of an APIService, its Service or its EndpointSlices do not wait."""
_AGGREGATOR = User("system:kube-aggregator", groups=(MASTERS,))
_OWN = ("authorization", "impersonate-", "x-remote-")
"""Beginnings of headers that are the client's to this server and not to the next one."""
_PLAIN = frozenset(f"{string.ascii_letters}{string.digits}-_.!~*'")
Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Condition:
    available: bool
    reason: str
    message: str


LOCAL = Condition(True, LOCAL_REASON, LOCAL_MESSAGE)
PASSED = Condition(True, "Passed", "all checks passed")


class Aggregator:
    """Follows APIServices, checks their servers and forwards requests."""

    def __init__(self, engine: Engine, openapi: OpenApi, servers: AggregatedServers | None) -> None:
        self._engine = engine
        self._openapi = openapi
        self._servers = servers
        self._endpoints = ServiceEndpoints(engine.store)
        self._resource = engine.registry.builtin("apiregistration.k8s.io", "apiservices")
        self._services: dict[str, Object] = {}
        self._by_version: dict[tuple[str, str], Object] = {}
        self._available: set[str] = set()
        self._kinds: dict[str, tuple[Kind, ...]] = {}
        self._documents: dict[str, str] = {}
        """Addresses of the OpenAPI v3 documents of APIServices."""
        self._v2: dict[str, tuple[str, dict[str, Any]]] = {}
        """Parts of OpenAPI v2 documents and their hashes, by APIService."""
        self._looked: dict[str, tuple[str, float]] = {}
        """The address of the v3 document and the time at which the v2 document of an APIService was read."""
        self._due: set[str] = set()
        """Storage keys of the APIServices that are to be checked."""
        self._checking: set[str] = set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(follow(self._engine.store, self._resource.prefix, self._on_list, self._on_change))
            for prefix in (SERVICES, SLICES):
                parts.create_task(follow(self._engine.store, prefix, self._on_endpoints, self._on_endpoint))
            parts.create_task(self._check_when_due())
            parts.create_task(self._check_regularly())

    def find(self, group: str, version: str) -> Object | None:
        """Returns the APIService that serves a group and version elsewhere."""
        return self._by_version.get((group, version))

    def find_document(self, path: str) -> Object | None:
        """Returns the APIService that has the document of a path such as `/openapi/v3/apis/example.com/v1`."""
        beginning, _, named = path.partition("/openapi/v3/apis/")
        group, _, version = named.partition("/")
        service = self.find(group, version) if named and not beginning else None
        return service if service is not None and service["metadata"]["name"] in self._documents else None

    async def answer(self, service: Object, request: Request, user: User) -> Answer:
        """Forwards a request; 503 while the server is not available."""
        name = service["metadata"]["name"]
        if self._servers is None or name not in self._available:
            return _unavailable()
        try:
            server = await self._server(service)
        except ApiError:
            return _unavailable()
        kept = {name: value for name, value in request.headers.items() if not name.startswith(_OWN)}
        forwarded = msgspec.structs.replace(request, headers=kept)
        path = f"{request.path}?{request.raw_query}" if request.raw_query else request.path
        try:
            return await self._servers.forward(server, path, forwarded, identity(user))
        except Unreachable:
            return _unavailable()

    async def _on_list(self, items: list[Item]) -> None:
        self._services = {item.key: unpack(item) for item in items}
        self._update()
        self._check(self._services)

    async def _on_change(self, change: Change) -> None:
        before = self._services.pop(change.key, None)
        if change.item is not None:
            self._services[change.key] = unpack(change.item)
        self._update()
        if change.item is not None and (before is None or before["spec"] != self._services[change.key]["spec"]):
            self._check([change.key])

    async def _on_endpoints(self, _items: list[Item]) -> None:
        self._check(self._services)

    async def _on_endpoint(self, change: Change) -> None:
        """Checks the APIServices that a Service or an EndpointSlice may concern: it is in their Service's namespace and
        contains its name."""
        item = change.item or change.previous
        if not self._by_version or item is None:
            return
        namespace = change.key.rsplit("/", 2)[-2]
        self._check(
            key
            for key, obj in self._services.items()
            if (reference := obj["spec"].get("service"))
            and reference.get("namespace") == namespace
            and reference.get("name", "").encode() in item.value
        )

    def _update(self) -> None:
        remote = [obj for obj in self._services.values() if obj["spec"].get("service")]
        self._by_version = {_version_of(obj): obj for obj in remote}
        names = {obj["metadata"]["name"] for obj in remote}
        self._available &= names
        self._announce({name: kinds for name, kinds in self._kinds.items() if name in names})
        self._list_documents({name: url for name, url in self._documents.items() if name in names})
        self._looked = {name: look for name, look in self._looked.items() if name in names}
        self._merge_documents({name: part for name, part in self._v2.items() if name in names})

    def _announce(self, kinds: dict[str, tuple[Kind, ...]]) -> None:
        if kinds != self._kinds:
            self._kinds = kinds
            registry = self._engine.registry
            registry.announce([kind for several in kinds.values() for kind in several])

    def _list_documents(self, documents: dict[str, str]) -> None:
        self._documents = documents
        self._openapi.elsewhere = {
            url.removeprefix("/openapi/v3/").partition("?")[0]: url for url in documents.values()
        }

    def _merge_documents(self, parts: dict[str, tuple[str, dict[str, Any]]]) -> None:
        self._v2 = parts
        self._openapi.replace_others(part for _, part in sorted(parts.items()))

    def _check(self, keys: Iterable[str]) -> None:
        self._due.update(keys)
        self._changed.set()

    async def _check_regularly(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._check(self._services)

    async def _check_when_due(self) -> None:
        """Checks servers beside each other, so that a slow one delays no other; and each one once at a time."""
        async with asyncio.TaskGroup() as checks:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for key in self._due - self._checking:
                    self._due.discard(key)
                    self._checking.add(key)
                    checks.create_task(self._check_one(key))

    async def _check_one(self, key: str) -> None:
        try:
            if (service := self._services.get(key)) is not None:
                condition = await self._checked(service)
                await self._write(service, condition)
                if condition is PASSED:
                    await self._find_document(service)
                    await self._read_v2_document(service)
        finally:
            self._checking.discard(key)
            self._changed.set()

    async def _checked(self, service: Object) -> Condition:
        """Checks one server; what it serves is announced while it is available."""
        spec, name = service["spec"], service["metadata"]["name"]
        if spec.get("service") is None:
            return LOCAL
        reference = spec["service"]
        group, version = _version_of(service)
        where = f'service/{reference.get("name", "")} in "{reference.get("namespace", "")}"'
        try:
            server = await self._server(service)
        except ApiError as error:
            self._available.discard(name)
            if error.code == 404:
                return Condition(False, "ServiceNotFound", f"{where} is not present")
            if "service port" in error.message:
                port = reference.get("port") or 443
                return Condition(False, "ServicePortError", f"{where} is not listening on port {port}")
            return Condition(False, "MissingEndpoints", f"endpoints for {where} have no addresses")
        path = f"/apis/{group}/{version}"
        try:
            if self._servers is None:
                raise Unreachable("this API server has no client for aggregated ones")
            status, body = await self._servers.fetch(server, path, identity(_AGGREGATOR))
            if status != 200:
                raise Unreachable(f"bad status from https://{server.address}:{server.port}{path}: {status}")
            kinds = kinds_of(group, version, msgspec.json.decode(body))
        except (Unreachable, ApiError, msgspec.MsgspecError, LookupError, TypeError, AttributeError) as error:
            self._available.discard(name)
            why = f"failing or missing response from https://{server.address}:{server.port}{path}: {error}"
            return Condition(False, "FailedDiscoveryCheck", why)
        if (group, version) in self._by_version:  # it was not deleted meanwhile
            self._available.add(name)
            self._announce({**self._kinds, name: kinds})
        return PASSED

    async def _find_document(self, service: Object) -> None:
        """Lists the OpenAPI v3 document of a server; one that does not answer keeps the document that it had."""
        name, (group, version) = service["metadata"]["name"], _version_of(service)
        path = f"apis/{group}/{version}"
        try:
            if self._servers is None:
                return
            status, body = await self._servers.fetch(await self._server(service), "/openapi/v3", identity(_AGGREGATOR))
            url = msgspec.json.decode(body)["paths"][path]["serverRelativeURL"] if status == 200 else None
        except (Unreachable, ApiError):
            return
        except (msgspec.MsgspecError, LookupError, TypeError):
            url = None
        documents = {other: known for other, known in self._documents.items() if other != name}
        if isinstance(url, str) and url.partition("?")[0] == f"/openapi/v3/{path}" and name in self._available:
            documents[name] = url
        self._list_documents(documents)

    async def _read_v2_document(self, service: Object) -> None:
        """Merges the v2 document of a server; one that does not answer keeps what it had."""
        name, (group, version) = service["metadata"]["name"], _version_of(service)
        url, now = self._documents.get(name, ""), self._engine.clock.monotonic()
        before, since = self._looked.get(name, ("", -DOCUMENT_SECONDS))
        if self._servers is None or (name in self._looked and url == before and now - since < DOCUMENT_SECONDS):
            return
        try:
            status, body = await self._servers.fetch(await self._server(service), "/openapi/v2", identity(_AGGREGATOR))
        except (Unreachable, ApiError):
            return
        parts = {other: part for other, part in self._v2.items() if other != name}
        if status == 200:
            try:
                parts[name] = await offload.in_worker(lambda: other_part(body, f"/apis/{group}/{version}/"))
            except ValueError as error:
                _log.warning("cannot merge OpenAPI v2 document", extra={"service": name, "error": str(error)})
        if name in self._available:
            self._looked[name] = (url, now)
            self._merge_documents(parts)

    async def _server(self, service: Object) -> AggregatedServer:
        """Returns where the server of an APIService is. Raises ApiError without a ready endpoint."""
        spec = service["spec"]
        namespace, name = spec["service"].get("namespace", ""), spec["service"].get("name", "")
        endpoint = await self._endpoints.find(namespace, name, spec["service"].get("port") or 443)
        return AggregatedServer(
            address=endpoint.address,
            port=endpoint.port,
            server_name=f"{name}.{namespace}.svc",
            ca=client_config_of({"caBundle": spec.get("caBundle")}).ca,
            insecure=bool(spec.get("insecureSkipTLSVerify")),
        )

    async def _write(self, service: Object, condition: Condition) -> None:
        """Writes the condition Available, if it has changed."""
        conditions = (service.get("status") or {}).get("conditions") or ()
        known: Object = next((one for one in conditions if one.get("type") == "Available"), {})
        status = "True" if condition.available else "False"
        reported = (known.get("status"), known.get("reason"), known.get("message"))
        if reported == (status, condition.reason, condition.message):
            return
        since = known.get("lastTransitionTime") if known.get("status") == status else None
        new = {
            "type": "Available",
            "status": status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": since or rfc3339(self._engine.clock.wall()),
        }

        def changed(obj: Object) -> Object:
            before = (obj.get("status") or {}).get("conditions") or ()
            others = [one for one in before if one.get("type") != "Available"]
            return {**obj, "status": {**(obj.get("status") or {}), "conditions": [*others, new]}}

        write = Write(
            resource=self._resource,
            namespace="",
            name=service["metadata"]["name"],
            change=changed,
            user=SYSTEM,
            subresource="status",
            run_policies=False,
        )
        try:
            await self._engine.updater.update(write)
        except (ApiError, StorageError) as error:
            _log.info("cannot write APIService status", extra={"service": write.name, "error": str(error)})


def _version_of(service: Object) -> tuple[str, str]:
    """Returns the group and version of an APIService; earlier versions of podwire stored some without."""
    return service["spec"].get("group", ""), service["spec"].get("version", "")


def identity(user: User) -> Headers:
    """Returns the headers by which the front proxy names a user."""
    headers = [("X-Remote-User", user.name)]
    if user.uid:
        headers.append(("X-Remote-Uid", user.uid))
    headers += [("X-Remote-Group", group) for group in user.groups]
    for key, values in user.extra.items():
        headers += [(f"X-Remote-Extra-{_escaped(key)}", value) for value in values]
    return headers


def _escaped(key: str) -> str:
    """Returns a key as a header's name can have it: other characters are percent-encoded."""
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in key.encode())


def kinds_of(group: str, version: str, document: Mapping[str, Any]) -> tuple[Kind, ...]:
    """Returns the kinds that a server announces in an APIResourceList."""
    whole = [one for one in document["resources"] if "/" not in one["name"]]
    parts = [one for one in document["resources"] if "/" in one["name"]]
    return tuple(
        Kind(
            group=group,
            version=version,
            resource=one["name"],
            kind=one["kind"],
            namespaced=bool(one.get("namespaced")),
            singular=one.get("singularName") or "",
            short_names=tuple(one.get("shortNames") or ()),
            categories=tuple(one.get("categories") or ()),
            verbs=tuple(one.get("verbs") or ()),
            subresources=tuple(
                Subresource(
                    part["name"].partition("/")[2],
                    tuple(part.get("verbs") or ()),
                    part.get("kind", ""),
                    part.get("group") or group,
                    part.get("version") or version,
                )
                for part in parts
                if part["name"].partition("/")[0] == one["name"]
            ),
        )
        for one in whole
    )


def _unavailable() -> Response:
    return Response(status=503, body=b"service unavailable\n", content_type="text/plain; charset=utf-8")
