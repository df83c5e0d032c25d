"""The verbs of the API for programs: kinds by apiVersion and kind, custom ones found by discovery."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from podwire.client.sessions import Completed, Forwarding, Session, run_to_end
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, Informer, Listing, PatchType, Propagation, Scope
from podwire.protocols.k8sapi.client_side.calls import Patience
from podwire.protocols.k8sapi.client_side.calls import refusal as refused_call
from podwire.protocols.k8sapi.client_side.client import PAGE
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import ERROR, Frame, Object, metadata
from podwire.protocols.streaming.channels import PROTOCOLS
from podwire.transports.http_client import HttpClient
from podwire.transports.http_websocket_client import FarSocket, HandshakeRefused

ALL_NAMESPACES = ""
_PODS = BUILTIN["v1", "Pod"]


class Api:
    """One cluster. A namespace that is not given is that of the kubeconfig's context; `""` means all of them.

    Calls that the server put off (429 and 503 with Retry-After) and reads without an answer are repeated, within the
    deadline of `patience`.
    """

    def __init__(self, http: HttpClient, namespace: str = "default", patience: Patience | None = None) -> None:
        self._http = http
        self._client = Client(http, patience=patience)
        self.namespace = namespace

    async def get(
        self, api_version: str, kind: str, name: str, namespace: str | None = None, *, subresource: str = ""
    ) -> Object:
        """Returns an object, or a subresource of it such as `scale`."""
        found = await self._client.find(api_version, kind)
        return await self._client.get(found, name, self._in(namespace), subresource=subresource)

    async def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        limit: int = PAGE,
    ) -> AsyncIterator[Object]:
        """Yields objects, page by page, as of one moment; the server keeps that moment for some minutes (ApiError 410).

        `labels` and `fields` are selectors.
        """
        found = await self._client.find(api_version, kind)
        scope = self._scope(found, namespace, labels, fields, metadata_only=metadata_only)
        async with contextlib.aclosing(self._client.objects(found, scope, limit=limit)) as objects:
            async for object_ in objects:
                yield object_

    async def snapshot(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> Listing:
        """Returns all objects of one moment and its resourceVersion, from which a watch can go on."""
        found = await self._client.find(api_version, kind)
        scope = self._scope(found, namespace, labels, fields, metadata_only=metadata_only)
        return await self._client.list(found, scope)

    async def create(self, object_: Object, *, field_manager: str = "", dry_run: bool = False) -> Object:
        placed = await self._placed(object_)
        return await self._client.create(placed, field_manager=field_manager, dry_run=dry_run)

    async def update(
        self, object_: Object, *, subresource: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Object:
        """Replaces an object or, with `subresource="status"`, its status. Conditional on its resourceVersion, if it has
        one: ApiError with Reason.CONFLICT."""
        placed = await self._placed(object_)
        return await self._client.replace(placed, subresource=subresource, field_manager=field_manager, dry_run=dry_run)

    async def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        type_: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> Object:
        found = await self._client.find(api_version, kind)
        return await self._client.patch(
            found,
            name,
            patch,
            self._in(namespace),
            type_=type_,
            subresource=subresource,
            field_manager=field_manager,
            dry_run=dry_run,
        )

    async def apply(
        self,
        object_: Object,
        *,
        field_manager: str,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply: creates the object or sets the fields that are given, which then belong to the manager.

        A field of another manager is ApiError with Reason.CONFLICT; `force` takes it over.
        """
        placed = await self._placed(object_)
        return await self._client.apply(
            placed, field_manager=field_manager, force=force, subresource=subresource, dry_run=dry_run
        )

    async def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Returns the object if it is still there (it has finalizers or time to end), else a Status.

        `uid` and `resource_version` are preconditions.
        """
        found = await self._client.find(api_version, kind)
        return await self._client.delete(
            found,
            name,
            self._in(namespace),
            grace_seconds=grace_seconds,
            propagation=propagation,
            uid=uid,
            resource_version=resource_version,
            dry_run=dry_run,
        )

    async def delete_collection(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Deletes what the selectors match in one namespace; without selectors, all of the kind."""
        found = await self._client.find(api_version, kind)
        scope = self._scope(found, namespace, labels, fields)
        await self._client.delete_collection(found, scope, propagation=propagation, grace_seconds=grace_seconds)

    async def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        resource_version: str = "",
        seconds: int = 0,
    ) -> AsyncIterator[Frame]:
        """Yields the events of one watch request, bookmarks among them, until the server ends it. Without a
        resourceVersion, all objects come first as ADDED. `informer` resumes by itself."""
        found = await self._client.find(api_version, kind)
        scope = self._scope(found, namespace, labels, fields, metadata_only=metadata_only)
        frames = await self._client.watch(found, scope, resource_version=resource_version, seconds=seconds)
        try:
            async for frame in frames:
                if frame.type == ERROR:
                    raise ApiError.from_status(frame.object)
                yield frame
        finally:
            frames.close()

    async def informer(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        resync: float = 0.0,
    ) -> Informer:
        """Returns a copy of the objects that keeps itself: `async with await api.informer(…) as pods`."""
        found = await self._client.find(api_version, kind)
        scope = self._scope(found, namespace, labels, fields, metadata_only=metadata_only)
        return self._client.informer(found, scope, resync=resync)

    async def scale(
        self, api_version: str, kind: str, name: str, replicas: int, namespace: str | None = None
    ) -> Object:
        """Sets the replicas of a workload through its subresource; returns the Scale."""
        patch = {"spec": {"replicas": replicas}}
        return await self.patch(api_version, kind, name, patch, namespace, subresource="scale")

    async def evict(self, pod: str, namespace: str | None = None, *, grace_seconds: int | None = None) -> None:
        """Raises ApiError 429 while a disruption budget forbids it."""
        await self._client.evict(pod, self._in(namespace), grace_seconds=grace_seconds)

    async def token(
        self,
        service_account: str,
        namespace: str | None = None,
        *,
        audiences: Sequence[str] = (),
        seconds: int = 3600,
        bound_to: Mapping[str, str] | None = None,
    ) -> str:
        """Returns a token of a service account. `bound_to` is a reference to a pod or a secret."""
        spec: dict[str, Any] = {"audiences": [*audiences], "expirationSeconds": seconds}
        if bound_to is not None:
            spec["boundObjectRef"] = dict(bound_to)
        request = await self._client.token(service_account, self._in(namespace), spec)
        token: str = request["status"]["token"]
        return token

    async def log(
        self,
        pod: str,
        namespace: str | None = None,
        *,
        container: str = "",
        follow: bool = False,
        previous: bool = False,
        timestamps: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Yields the log of a container in pieces as they come, cut anywhere."""
        query = {
            "container": container,
            "follow": "true" if follow else "",
            "previous": "true" if previous else "",
            "timestamps": "true" if timestamps else "",
            "tailLines": "" if tail_lines is None else str(tail_lines),
            "sinceSeconds": "" if since_seconds is None else str(since_seconds),
        }
        pairs = [(name, value) for name, value in query.items() if value]
        incoming = await self._client.log(pod, self._in(namespace), pairs)
        try:
            while data := await incoming.read():
                yield data
        finally:
            incoming.close()

    @contextlib.asynccontextmanager
    async def exec(
        self,
        pod: str,
        command: Sequence[str],
        namespace: str | None = None,
        *,
        container: str = "",
        stdin: bool = False,
        tty: bool = False,
    ) -> AsyncIterator[Session]:
        """Runs a command in a container: `async with api.exec("web", ["sh"], stdin=True) as session`."""
        arguments = [("command", argument) for argument in command]
        async with self._session(pod, "exec", arguments, namespace, container, stdin=stdin, tty=tty) as session:
            yield session

    @contextlib.asynccontextmanager
    async def attach(
        self,
        pod: str,
        namespace: str | None = None,
        *,
        container: str = "",
        stdin: bool = False,
        tty: bool = False,
    ) -> AsyncIterator[Session]:
        """Connects to the first process of a container."""
        async with self._session(pod, "attach", [], namespace, container, stdin=stdin, tty=tty) as session:
            yield session

    async def run(
        self,
        pod: str,
        command: Sequence[str],
        namespace: str | None = None,
        *,
        container: str = "",
        stdin: bytes = b"",
    ) -> Completed:
        """Runs a command in a container to its end; returns its exit code and its output."""
        async with self.exec(pod, command, namespace, container=container, stdin=bool(stdin)) as session:
            return await run_to_end(session, stdin)

    @contextlib.asynccontextmanager
    async def port_forward(self, pod: str, port: int, namespace: str | None = None) -> AsyncIterator[Forwarding]:
        """Opens one connection to a port in a pod: `async with api.port_forward("web", 80) as stream`."""
        socket = await self._dial(pod, "portforward", [("ports", str(port))], namespace)
        try:
            yield Forwarding(socket, port)
        finally:
            await socket.close()

    async def raw(self, path: str) -> bytes:
        """Returns the body of a GET of a path that is not a resource: /version, /readyz, /openapi/v3."""
        return await self._client.raw(path)

    async def kinds(self) -> Sequence[Kind]:
        """Returns all kinds that the server has now."""
        return await self._client.discover()

    @contextlib.asynccontextmanager
    async def _session(
        self,
        pod: str,
        subresource: str,
        query: Sequence[tuple[str, str]],
        namespace: str | None,
        container: str,
        *,
        stdin: bool,
        tty: bool,
    ) -> AsyncIterator[Session]:
        flags = {"container": container, "stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
        given = [(name, "true" if value is True else value) for name, value in flags.items() if value]
        socket = await self._dial(pod, subresource, [*query, *given], namespace)
        try:
            yield Session(socket)
        finally:
            await socket.close()

    async def _dial(
        self, pod: str, subresource: str, query: Sequence[tuple[str, Any]], namespace: str | None
    ) -> FarSocket:
        path = _PODS.target(self._in(namespace), pod, subresource).path()
        try:
            return await self._http.websocket(path, query=query, protocols=PROTOCOLS)
        except HandshakeRefused as refused:
            raise refused_call(refused.status, {}, refused.body) from refused

    def _in(self, namespace: str | None) -> str:
        return self.namespace if namespace is None else namespace

    def _scope(
        self, kind: Kind, namespace: str | None, labels: str, fields: str, *, metadata_only: bool = False
    ) -> Scope:
        return Scope(
            namespace=self._in(namespace) if kind.namespaced else "",
            label_selector=labels,
            field_selector=fields,
            metadata_only=metadata_only,
        )

    async def _placed(self, object_: Object) -> Object:
        """Returns an object with its namespace."""
        kind = await self._client.find(object_.get("apiVersion", ""), object_.get("kind", ""))
        if not kind.namespaced or metadata(object_).get("namespace"):
            return object_
        return {**object_, "metadata": {**metadata(object_), "namespace": self.namespace}}
