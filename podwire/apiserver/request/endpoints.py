"""Endpoints that are not resources: discovery, OpenAPI, version, health, metrics, token issuer, backup."""

import platform
from collections.abc import Callable, Mapping
from functools import partial

from podwire.apiserver.backup import PATH as BACKUP
from podwire.apiserver.backup import Backup
from podwire.apiserver.registry import Registry
from podwire.apiserver.request import offload
from podwire.kinds import stored
from podwire.kinds.schema import Discovery, OpenApi
from podwire.kinds.schema.discovery import storage_version_hash
from podwire.kinds.schema.documents import Document
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Request, Response, Stream
from podwire.protocols.prometheus import CONTENT_TYPE, Metrics

VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.0+podwire",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-11-15T00:00:00Z",
    "goVersion": f"python{platform.python_version()}",
    "compiler": "cpython",
    "platform": f"linux/{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine()) }",
}

METRICS = "/metrics"
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")

Check = Callable[[], str]
"""Returns what is wrong; empty when healthy."""


class Endpoints:
    """Serves discovery, OpenAPI and health. Discovery follows the registry as custom resources come and go."""

    def __init__(
        self,
        registry: Registry,
        openapi: OpenApi,
        *,
        address: str,
        checks: Mapping[str, Check],
        live_checks: Mapping[str, Check],
        documents: Mapping[str, bytes],
        metrics: Metrics | None = None,
        backup: Backup | None = None,
    ) -> None:
        self._registry = registry
        self._openapi = openapi
        self._address = address
        self._checks = dict.fromkeys(HEALTH_PATHS, live_checks) | {"/readyz": checks}
        """By path. A server that is not ready, and that a restart would not make ready, is alive."""
        self._documents = documents
        self._metrics = metrics or Metrics()
        self._backup = backup
        self._discovery = Discovery([])
        self._version = -1

    async def answer(self, request: Request) -> Response | Stream:
        """Returns the answer to a GET; 404 in plain text for unknown paths, as upstream does."""
        path = request.path.rstrip("/") or "/"
        if path == "/version":
            return _json(VERSION)
        if f"/{path[1:].partition('/')[0]}" in HEALTH_PATHS:
            return self._health(request, path)
        if path == METRICS:
            return Response(status=200, body=self._metrics.text().encode(), content_type=CONTENT_TYPE)
        if path == BACKUP and self._backup is not None:
            return self._backup.answer()
        if path in self._documents:
            return Response(status=200, body=self._documents[path])
        if path == "/":
            return _json({"paths": self._paths()})
        found = await self._openapi_document(request, path) or await self._discovered(request, path)
        return found or page_not_found()

    async def _discovered(self, request: Request, path: str) -> Response | None:
        if self._version != self._registry.version:
            self._discovery = Discovery(
                [*(resource.kind for resource in self._registry.resources), *self._registry.announced],
                address=self._address,
                storage_hashes=self._storage_hashes(),
            )
            self._version = self._registry.version
        document = self._discovery.document(path, request.headers.get("accept", ""))
        return await _document(request, document) if document else None

    def _storage_hashes(self) -> dict[Kind, str]:
        """Returns the hash of each kind that is stored: one that can be created and listed. A custom one whose
        storage version is not served has none, as upstream."""
        hashes = {}
        for resource in self._registry.resources:
            kind, stored = resource.kind, resource.stored_api_version or resource.stored_kind.api_version
            group, _, version = stored.rpartition("/")
            served = not resource.custom or self._registry.find(group, version, kind.resource) is not None
            if served and "create" in kind.verbs and "list" in kind.verbs:
                hashes[kind] = storage_version_hash(stored, kind.kind)
        return hashes

    async def _openapi_document(self, request: Request, path: str) -> Response | None:
        """Rendering takes long enough to be done in the worker; a client that has the document does not cause it."""
        if not path.startswith("/openapi/"):
            return None
        version, _, rest = path.removeprefix("/openapi/").partition("/")
        if version == "v3" and not rest:
            headers = (("Cache-Control", "no-cache, private"),)
            return Response(status=200, body=self._openapi.index(), headers=headers)
        accept = request.headers.get("accept", "")
        render: Callable[[], Document | None]
        if version == "v2" and not rest:
            digest, render = self._openapi.v2_hash(accept), partial(self._openapi.v2, accept)
        elif version == "v3":
            digest, render = self._openapi.hash(rest), partial(self._openapi.document, rest, request.option("hash"))
        else:
            return None
        if digest and request.headers.get("if-none-match") == f'"{digest}"':
            return Response(status=304, headers=(("ETag", f'"{digest}"'), ("Vary", "Accept")))
        document = await offload.in_worker(render) if digest and not self._openapi.is_rendered(digest) else render()
        return await _document(request, document) if document else None

    def _health(self, request: Request, path: str) -> Response:
        root, _, name = path[1:].partition("/")
        checks = self._checks[f"/{root}"]
        wanted = {name: checks[name]} if name in checks else {} if name else checks
        if name and not wanted:
            return page_not_found()
        excluded = set(request.query.get("exclude", []))
        lines, failed = [], False
        for check_name, check in wanted.items():
            if check_name in excluded:
                lines.append(f"[+]{check_name} excluded: ok")
                continue
            wrong = check()
            failed = failed or bool(wrong)
            lines.append(f"[-]{check_name} failed: {wrong}" if wrong else f"[+]{check_name} ok")
        if failed:
            return _text("\n".join([*lines, f"{root} check failed\n"]), status=500)
        return _text("\n".join([*lines, f"{root} check passed\n"]) if "verbose" in request.query else "ok")

    def _paths(self) -> list[str]:
        groups = {(resource.group, resource.kind.version) for resource in self._registry.resources}
        named = {f"/apis/{group}/{version}" for group, version in groups if group}
        fixed = ["/api", "/api/v1", "/apis", *HEALTH_PATHS, METRICS, "/openapi/v2", "/openapi/v3", "/version"]
        return sorted({*fixed, *named, *(f"/apis/{group}" for group, _ in groups if group), *self._documents})


async def _document(request: Request, document: Document) -> Response:
    headers = document.headers
    if document.etag and request.headers.get("if-none-match") == document.etag:
        return Response(status=304, content_type=document.content_type, headers=headers)
    if not document.gzipped:
        return Response(status=200, body=document.plain, content_type=document.content_type, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers = (*headers, ("Content-Encoding", "gzip"))
        return Response(status=200, body=document.gzipped, content_type=document.content_type, headers=headers)
    body = await offload.in_worker(lambda: document.body)
    return Response(status=200, body=body, content_type=document.content_type, headers=headers)


def _json(value: object) -> Response:
    return Response(status=200, body=stored.encode(value))


def _text(text: str, *, status: int = 200) -> Response:
    headers = (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-cache, private"))
    return Response(status=status, body=text.encode(), content_type="text/plain; charset=utf-8", headers=headers)


def page_not_found() -> Response:
    """Returns upstream's answer for groups and versions that are not served."""
    return _text("404 page not found\n", status=404)
