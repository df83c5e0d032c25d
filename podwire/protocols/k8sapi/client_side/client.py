"""The verbs of the API on plain objects (dicts with apiVersion and kind).

A refusal is an ApiError, no answer a ClientError. Asked again by itself only where that is safe: what the server put
off with Retry-After, and reads that got no answer.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side.calls import JSON, Calls, Patience
from podwire.protocols.k8sapi.client_side.http import Http, Incoming, Interrupted, Query
from podwire.protocols.k8sapi.client_side.informer import Informer
from podwire.protocols.k8sapi.client_side.options import (
    EVERYWHERE,
    Listing,
    Page,
    PatchType,
    Propagation,
    Scope,
    delete_options,
    write_options,
)
from podwire.protocols.k8sapi.client_side.watching import Watching, named
from podwire.protocols.k8sapi.discovered import AGGREGATED, aggregated_kinds, group_versions, plain_kinds
from podwire.protocols.k8sapi.kinds import Kind, Kinds
from podwire.protocols.k8sapi.paths import root
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Object, metadata

PAGE = 500


class Client:
    """Speaks to one API server. Kinds are given as Kind values, or found by what an object says of itself."""

    def __init__(self, http: Http, kinds: Kinds = BUILTIN, patience: Patience | None = None) -> None:
        self._calls = Calls(http, patience or Patience())
        self._kinds = kinds

    def kind_of(self, object_: Mapping[str, Any]) -> Kind:
        """The kind of an object; a custom one is known after `learn`."""
        api_version, kind = object_.get("apiVersion", ""), object_.get("kind", "")
        found = self._kinds.of_kind(api_version, kind)
        if found is None:
            raise ApiError(Reason.NOT_FOUND, f'no matches for kind "{kind}" in version "{api_version}"')
        return found

    async def find(self, api_version: str, kind: str) -> Kind:
        """Returns a kind that is built in, was learned, or that the server has by now. Raises ApiError (404)."""
        found = self._kinds.of_kind(api_version, kind)
        if found is None:
            group, _, version = api_version.rpartition("/")
            try:
                self.learn(plain_kinds(group, version, await self._calls.json("GET", root(group, version))))
            except ApiError as error:
                if error.code != 404:
                    raise
            found = self.kind_of({"apiVersion": api_version, "kind": kind})
        return found

    def learn(self, kinds: Iterable[Kind]) -> None:
        """Know these kinds too."""
        known = {(kind.api_version, kind.kind): kind for kind in (*self._kinds.all, *kinds)}
        self._kinds = Kinds(known.values())

    async def get(self, kind: Kind, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        path = kind.target(namespace, name, subresource).path()
        return _object(await self._calls.json("GET", path))

    async def list(self, kind: Kind, scope: Scope = EVERYWHERE) -> Listing:
        """Every page, as of one moment; when that moment is too long ago by then, once more in one go."""
        try:
            return await self._list(kind, scope, PAGE)
        except ApiError as error:
            if error.code != 410:
                raise
            return await self._list(kind, scope, 0)

    async def page(self, kind: Kind, scope: Scope = EVERYWHERE, *, limit: int = PAGE, token: str = "") -> bytes:
        """Returns one page of a list as it comes, for a caller that decodes it into types of its own."""
        query = scope.query(limit=str(limit), **{"continue": token})
        return (await self._calls.send("GET", kind.target(scope.namespace).path(), query=query)).body

    async def objects(
        self, kind: Kind, scope: Scope = EVERYWHERE, *, limit: int = PAGE
    ) -> AsyncGenerator[Object, None]:
        """Yields the objects of a list, as of one moment. Raises ApiError 410 when that moment is too long ago.

        The next page is on its way while the caller uses one.
        """
        fetching = asyncio.ensure_future(self._raw_page(kind, scope, limit, ""))
        try:
            while True:
                page = await fetching
                if page.next:
                    fetching = asyncio.ensure_future(self._raw_page(kind, scope, limit, page.next))
                for object_ in page:
                    yield object_
                if not page.next:
                    return
        except msgspec.DecodeError as error:
            raise Interrupted(
                f"GET {kind.target(scope.namespace).path()}: the answer is not a list: {error}"
            ) from error
        finally:
            fetching.cancel()
            await asyncio.wait({fetching})
            _ = fetching.cancelled() or fetching.exception()

    async def create(self, object_: Object, *, field_manager: str = "", dry_run: bool = False) -> Object:
        path = self.kind_of(object_).target(metadata(object_).get("namespace", "")).path()
        query = write_options(field_manager=field_manager, dry_run=dry_run)
        return _object(await self._write("POST", path, object_, query))

    async def replace(
        self, object_: Object, *, subresource: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Object:
        """Conditional on the object's resourceVersion, if it has one."""
        path = self._path(object_, subresource)
        query = write_options(field_manager=field_manager, dry_run=dry_run)
        return _object(await self._write("PUT", path, object_, query))

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        type_: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> Object:
        path = kind.target(namespace, name, subresource).path()
        query = write_options(field_manager=field_manager, force=force, dry_run=dry_run)
        return _object(await self._write("PATCH", path, patch, query, content_type=type_.value))

    async def apply(
        self,
        object_: Object,
        *,
        field_manager: str,
        subresource: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply: the fields given are this manager's."""
        path = self._path(object_, subresource)
        query = write_options(field_manager=field_manager, force=force, dry_run=dry_run)
        return _object(await self._write("PATCH", path, object_, query, content_type=PatchType.APPLY.value))

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Object:
        """The object if it is still there (it has finalizers or time to end), else a Status."""
        options = delete_options(grace_seconds, propagation, uid, resource_version)
        query = write_options(dry_run=dry_run)
        return _object(await self._write("DELETE", kind.target(namespace, name).path(), options, query))

    async def delete_collection(
        self, kind: Kind, scope: Scope, *, propagation: Propagation | None = None, grace_seconds: int | None = None
    ) -> None:
        options = delete_options(grace_seconds, propagation, "", "")
        await self._write("DELETE", kind.target(scope.namespace).path(), options, scope.query())

    async def call(self, kind: Kind, name: str, namespace: str, subresource: str, body: Object) -> Object:
        """POST to a subresource such as token; once, since what it does may not bear repeating."""
        path = kind.target(namespace, name, subresource).path()
        return _object(await self._write("POST", path, body, repeat=False))

    async def bind(self, name: str, namespace: str, node: str, *, uid: str = "") -> None:
        meta = {"name": name, "namespace": namespace, **({"uid": uid} if uid else {})}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        await self.call(_PODS, name, namespace, "binding", binding)

    async def evict(self, name: str, namespace: str, *, grace_seconds: int | None = None) -> None:
        """Raises ApiError 429 while a disruption budget forbids it."""
        options = {} if grace_seconds is None else {"deleteOptions": {"gracePeriodSeconds": grace_seconds}}
        meta = {"name": name, "namespace": namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, **options}
        await self.call(_PODS, name, namespace, "eviction", eviction)

    async def token(self, name: str, namespace: str, spec: Mapping[str, Any]) -> Object:
        """A token for a service account: the TokenRequest with its status."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": dict(spec)}
        return await self.call(_SERVICE_ACCOUNTS, name, namespace, "token", request)

    async def log(self, name: str, namespace: str, query: Query) -> Incoming:
        """Returns the log of a container as it comes."""
        return await self._calls.open(
            _PODS.target(namespace, name, "log").path(), query=query, headers={"accept": "*/*"}
        )

    async def watch(
        self,
        kind: Kind,
        scope: Scope = EVERYWHERE,
        *,
        resource_version: str = "",
        seconds: int = 0,
        initial: bool = False,
    ) -> Watching:
        """Frames as the server sends them; for a copy that keeps itself, take `informer`."""
        query = scope.query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=str(seconds) if seconds else "",
            sendInitialEvents="true" if initial else "",
            resourceVersionMatch="NotOlderThan" if initial else "",
        )
        path = kind.target(scope.namespace).path()
        incoming = await self._calls.open(path, query=query, headers=scope.accept("PartialObjectMetadata"))
        return Watching(incoming, kind if scope.metadata_only else None)

    def informer(
        self, kind: Kind, scope: Scope = EVERYWHERE, *, watch_list: bool = False, resync: float = 0.0
    ) -> Informer:
        """`async for change in client.informer(kind)`; see Informer."""
        about = f"{kind.resource}.{kind.group}" if kind.group else kind.resource
        return Informer(_Source(self, kind, scope), about, watch_list=watch_list, resync=resync)

    async def discover(self) -> Sequence[Kind]:
        """All kinds that the server has now, in its order."""
        found: list[Kind] = []
        for path in ("/api", "/apis"):
            document = await self._calls.json("GET", path, headers={"accept": f"{AGGREGATED},{JSON}"})
            if document.get("kind") == "APIGroupDiscoveryList":
                found += aggregated_kinds(document)
            else:
                found += await self._discover_each(document)
        return found

    async def raw(self, path: str, *, query: Query = (), accept: str = JSON) -> bytes:
        """Returns the body of a plain GET of a path that is not a resource: /version, /readyz, /openapi/v3."""
        return (await self._calls.send("GET", path, query=query, headers={"accept": accept})).body

    async def _discover_each(self, document: Mapping[str, Any]) -> Sequence[Kind]:
        listed = document.get("kind") == "APIGroupList"
        pairs = group_versions(document) if listed else [("", version) for version in document.get("versions", ())]
        found: list[Kind] = []
        for group, version in pairs:
            found += plain_kinds(group, version, await self._calls.json("GET", root(group, version)))
        return found

    async def _list(self, kind: Kind, scope: Scope, page: int) -> Listing:
        items: list[Object] = []
        token = ""
        while True:
            path, query, headers = _page_request(kind, scope, page, token)
            document = await self._calls.json("GET", path, query=query, headers=headers)
            items += document.get("items") or ()
            meta = document.get("metadata", {})
            token = meta.get("continue", "")
            if not token:
                return Listing([named(item, kind) for item in items], meta.get("resourceVersion", ""))

    async def _raw_page(self, kind: Kind, scope: Scope, limit: int, token: str) -> Page:
        path, query, headers = _page_request(kind, scope, limit, token)
        return Page((await self._calls.send("GET", path, query=query, headers=headers)).body, kind)

    async def _write(
        self,
        method: str,
        path: str,
        body: Any,
        query: Sequence[tuple[str, str]] = (),
        *,
        content_type: str = JSON,
        repeat: bool = True,
    ) -> Any:
        return await self._calls.json(
            method,
            path,
            query=query,
            headers={"content-type": content_type},
            body=msgspec.json.encode(body),
            repeat=repeat,
        )

    def _path(self, object_: Object, subresource: str) -> str:
        meta = metadata(object_)
        return self.kind_of(object_).target(meta.get("namespace", ""), meta.get("name", ""), subresource).path()


class _Source:
    """A kind in a scope, as the informer asks for it."""

    def __init__(self, client: Client, kind: Kind, scope: Scope) -> None:
        self._client = client
        self._kind = kind
        self._scope = scope

    async def list(self) -> tuple[Sequence[Object], str]:
        listing = await self._client.list(self._kind, self._scope)
        return listing.items, listing.resource_version

    async def watch(self, resource_version: str, *, seconds: int, initial: bool) -> Watching:
        return await self._client.watch(
            self._kind, self._scope, resource_version=resource_version, seconds=seconds, initial=initial
        )


def _page_request(kind: Kind, scope: Scope, limit: int, token: str) -> tuple[str, Query, dict[str, str]]:
    query = scope.query(limit=str(limit) if limit else "", **{"continue": token})
    return kind.target(scope.namespace).path(), query, scope.accept("PartialObjectMetadataList")


def _kind(api_version: str, kind: str) -> Kind:
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(kind)
    return found


_PODS = _kind("v1", "Pod")
_SERVICE_ACCOUNTS = _kind("v1", "ServiceAccount")


def _object(value: Any) -> Object:
    if not isinstance(value, dict):
        raise ApiError(Reason.UNKNOWN, f"expected an object, got {type(value).__name__}")
    return value
