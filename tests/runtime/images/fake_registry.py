"""A registry on loopback that misbehaves on demand. It shares no code with the client."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
GRANTED = "granted-token"


@dataclass
class FakeRegistry:
    """Blobs by digest, manifests by tag and digest; what it was asked, and what it does wrong."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """`METHOD PATH?QUERY` of each request."""
    authorizations: list[str] = field(default_factory=list)
    token_requests: list[dict[str, Any]] = field(default_factory=list)
    challenge: str = ""
    """Sent with a 401 to requests without the right Authorization."""
    accepts: str = ""
    cut_after: list[int] = field(default_factory=list)
    """Each blob request takes one: the connection is closed after so many bytes."""
    chunks: bool = False
    """Blobs are sent in chunks, without their length, and cut before the last, empty one."""
    ignores_range: bool = False
    shifts_range: int = 0
    statuses: list[int] = field(default_factory=list)
    """Each blob request takes one, and answers with it."""
    redirect: str = ""
    """Blobs are at this base instead."""
    delay: float = 0.0
    port: int = 0
    in_flight: int = 0
    most_in_flight: int = 0

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def serve_image(self, made: Any, tag: str = "1") -> None:
        self.blobs.update(made.blobs())
        self.manifests[tag] = self.manifests[made.row["digest"]] = (MANIFEST, made.manifest_blob)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FakeRegistry"]:
        app = web.Application()
        app.router.add_route("*", "/token", self._token)
        app.router.add_get("/v2/{name:.+}/manifests/{reference}", self._manifest)
        app.router.add_get("/v2/{name:.+}/blobs/{digest}", self._blob)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    def _refusal(self, request: web.Request) -> web.Response | None:
        self.asked.append(f"{request.method} {request.path_qs}")
        self.authorizations.append(request.headers.get("Authorization", ""))
        if self.challenge and request.headers.get("Authorization", "") != self.accepts:
            headers = {"WWW-Authenticate": self.challenge.replace("HOST", self.host)}
            return web.json_response(
                {"errors": [{"code": "UNAUTHORIZED", "message": "no"}]}, status=401, headers=headers
            )
        return None

    async def _token(self, request: web.Request) -> web.Response:
        form = dict(await request.post()) if request.method == "POST" else {}
        self.token_requests.append({**request.query, **form, "authorization": request.headers.get("Authorization", "")})
        return web.json_response({"token": GRANTED})

    async def _manifest(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._refusal(request):
            return refusal
        found = self.manifests.get(request.match_info["reference"])
        if found is None:
            error = {"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}
            return web.json_response({"errors": [error]}, status=404)
        return web.Response(body=found[1], headers={"Content-Type": found[0]})

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._refusal(request):
            return refusal
        if self.redirect:
            raise web.HTTPTemporaryRedirect(self.redirect + request.path_qs)
        if self.statuses:
            return web.Response(status=self.statuses.pop(0))
        data = self.blobs.get(request.match_info["digest"])
        if data is None:
            return web.json_response({"errors": [{"code": "BLOB_UNKNOWN"}]}, status=404)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.delay)
            return await self._send(request, data)
        finally:
            self.in_flight -= 1

    async def _send(self, request: web.Request, data: bytes) -> web.StreamResponse:
        start, status, headers = 0, 200, {}
        if (asked := request.headers.get("Range", "")) and not self.ignores_range:
            start, status = int(asked.removeprefix("bytes=").rstrip("-")) + self.shifts_range, 206
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        body = data[start:]
        if start >= len(data) and data:
            return web.Response(status=416)
        response = web.StreamResponse(status=status, headers=headers)
        if self.chunks:
            response.enable_chunked_encoding()
        else:
            response.content_length = len(body)
        await response.prepare(request)
        if self.chunks:
            await response.write(body)
            assert request.transport is not None
            request.transport.close()
            return response
        if self.cut_after:
            await response.write(body[: self.cut_after.pop(0)])
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(body)
        await response.write_eof()
        return response


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
