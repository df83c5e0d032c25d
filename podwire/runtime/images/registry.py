"""Reads manifests and blobs of one repository from the hosts that serve it: mirrors first, the registry last.

Each host is asked in turn; the next one when a host cannot be reached, refuses, or does not have what is asked for. A
host that demands credentials gets them once: a second 401 is an error, not a loop. Credentials and tokens go only to
the host that asked for them and to its token server; a redirect to another host, where many registries keep blobs,
gets none.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, TypeVar
from urllib.parse import urljoin, urlsplit

from podwire.protocols.distribution import (
    BadChallenge,
    BadToken,
    Challenge,
    Host,
    Login,
    describe_error,
    parse_challenges,
    parse_token,
    token_request,
)
from podwire.protocols.distribution.http import BODY, Http, Interrupted, NotTls, Response, Unreachable
from podwire.runtime.images.documents import INDEXES, MANIFESTS, Descriptor, digest_of
from podwire.runtime.images.errors import BadImage, OverLimit, PullFailed
from podwire.runtime.images.limits import Limits

log = logging.getLogger(__name__)

ANONYMOUS = Login()
ACCEPT = ", ".join(sorted((*MANIFESTS, *INDEXES)))
_REDIRECTS = (301, 302, 303, 307, 308)

_Content = TypeVar("_Content")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullLimits:
    """Bounds of a pull besides those of the image itself. Times are seconds."""

    parallel: int = 3
    """Layers of one image that are downloaded at the same time."""
    unpacking: int = 4
    """Images that are unpacked at the same time."""
    redirects: int = 5
    attempts: int = 6
    """Connections for one blob: each goes on where the last one was cut."""
    pause: float = 0.2
    """Before the second attempt; doubled each time."""
    longest_pause: float = 5.0
    token: int = 1 << 20
    """Bytes of a token server's answer."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest or an index as it was received, with its digest."""

    data: bytes
    media_type: str
    """By the host; empty when it says none that is a manifest's or an index's."""
    digest: str


class _Refused(Exception):
    """A host's answer is not the content: the status and its own words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(slots=True)
class Repository:
    """One repository: `path` without the registry's name, and the hosts that serve it.

    `login` is sent to the registry's own host and to the `server` of its hosts.toml, never to mirrors.
    """

    registry: str
    path: str
    hosts: Sequence[Host]
    http: Http
    login: Login = ANONYMOUS
    limits: Limits = field(default_factory=Limits)
    pulling: PullLimits = field(default_factory=PullLimits)
    _authorization: dict[str, str] = field(default_factory=dict)
    """By the base of a host: the header that it accepted."""
    _plain: set[str] = field(default_factory=set)
    """Hosts on loopback that speak plain HTTP."""

    async def manifest(self, reference: str) -> Manifest:
        """Returns what a tag or a digest means. Raises PullFailed, BadImage."""
        is_digest = ":" in reference
        hosts = [host for host in self.hosts if (host.pulls if is_digest else host.resolves)]

        async def read(host: Host) -> Manifest:
            async with self._get(host, f"manifests/{reference}", (("Accept", ACCEPT),)) as response:
                data = await _bounded(response, self.limits.document, f"{host.name}: manifest {reference}")
            digest = digest_of(data)
            promised = reference if is_digest else response.headers.get("docker-content-digest", digest)
            if promised.startswith("sha256:") and promised != digest:
                raise BadImage(f"{host.name}: manifest {reference}", f"digest mismatch: it is {digest}, not {promised}")
            return Manifest(data, _media_type(response), digest)

        return await self._from_first(hosts, read)

    async def document(self, descriptor: Descriptor) -> bytes:
        """Returns a small blob, such as a config, verified. Raises PullFailed, BadImage."""
        if descriptor.size > self.limits.document:
            raise OverLimit(descriptor.digest, f"has more than {self.limits.document} bytes")

        async def read(host: Host) -> bytes:
            async with self._get(host, f"blobs/{descriptor.digest}") as response:
                where = f"{host.name}: {descriptor.digest}"
                data = await _bounded(response, self.limits.document, where, size=descriptor.size)
            if digest_of(data) != descriptor.digest:
                raise BadImage(f"{host.name}: {descriptor.digest}", f"digest mismatch: it is {digest_of(data)}")
            return data

        return await self._from_first([host for host in self.hosts if host.pulls], read)

    async def download(self, descriptor: Descriptor, file: BinaryIO, progress: Callable[[int], None]) -> None:
        """Writes a blob to an empty file, and verifies size and digest on the way. Raises PullFailed, BadImage.

        A cut connection is taken up where it ended, at another host if need be. `progress` gets the number of new
        bytes, negative when a host made the download start again.
        """
        blob = _Blob(descriptor, file, progress)
        hosts = [host for host in self.hosts if host.pulls]
        await self._from_first(hosts, lambda host: self._continue(host, blob))

    async def _continue(self, host: Host, blob: "_Blob") -> None:
        """Reads the rest of a blob. A host that ignores `Range` sends it whole, so it starts again."""
        headers = (("Range", f"bytes={blob.size}-"),) if blob.size else ()
        try:
            async with self._get(host, f"blobs/{blob.descriptor.digest}", headers) as response:
                if blob.size and response.status != 206:
                    blob.restart()
                elif blob.size and not response.headers.get("content-range", "").startswith(f"bytes {blob.size}-"):
                    raise BadImage(
                        f"{host.name}: {blob.descriptor.digest}", "the host sent another range than was asked for"
                    )
                async for piece in _pieces(response, blob.descriptor.size - blob.size):
                    blob.add(piece, host.name)
        except _Refused as error:
            if error.status != 416:
                raise
            raise _Refused(416, f"416: ended after {blob.size} of {blob.descriptor.size} bytes") from error
        blob.finish(host.name)

    async def _from_first(self, hosts: Sequence[Host], read: Callable[[Host], Awaitable[_Content]]) -> _Content:
        """Returns what the first host that can gives. Raises PullFailed with the reasons of all."""
        refusals: list[tuple[Host, Exception]] = []
        for host in hosts:
            try:
                return await self._persist(host, read)
            except (Interrupted, Unreachable, _Refused, BadChallenge, BadToken) as error:
                refusals.append((host, error))
                log.info("host did not serve the image", extra={"host": host.name, "error": str(error)})
        if not refusals:
            raise PullFailed(f"{self.registry}: no host of hosts.toml has the capability that is needed")
        reasons = "; ".join(f"{host.name}: {error}" for host, error in refusals)
        last = refusals[-1][1]
        status = last.status if isinstance(last, _Refused) else 0
        raise PullFailed(reasons, missing=status == 404, denied=status in (401, 403))

    async def _persist(self, host: Host, read: Callable[[Host], Awaitable[_Content]]) -> _Content:
        """Tries again after a cut connection and while a host is busy; a host that is not there is left at once."""
        pause = self.pulling.pause
        for _ in range(self.pulling.attempts - 1):
            try:
                return await read(host)
            except (Interrupted, _Refused) as error:
                if isinstance(error, _Refused) and error.status < 500 and error.status != 429:
                    raise
                log.info("request to a registry was cut, trying again", extra={"host": host.name, "error": str(error)})
            await asyncio.sleep(pause)
            pause = min(2 * pause, self.pulling.longest_pause)
        return await read(host)

    @contextlib.asynccontextmanager
    async def _get(self, host: Host, path: str, headers: Sequence[tuple[str, str]] = ()) -> AsyncIterator[Response]:
        """Yields a successful answer. Raises _Refused, Unreachable, Interrupted, BadChallenge, BadToken."""
        where = f"/{self.path}/{path}" + (f"?ns={self.registry}" if host.mirrors else "")
        try:
            if host.base in self._plain:
                raise NotTls
            response = await self._authorized(host, host.base + where, headers)
        except NotTls:
            if not host.plain_fallback:
                raise
            self._plain.add(host.base)
            response = await self._authorized(host, "http" + host.base.removeprefix("https") + where, headers)
        try:
            if response.status not in (200, 206):
                raise _Refused(response.status, describe_error(response.status, await _beginning(response, BODY)))
            yield response
        finally:
            response.close()

    async def _authorized(self, host: Host, url: str, headers: Sequence[tuple[str, str]]) -> Response:
        """Sends a GET with the credentials that the host accepted before; obtains them once if it asks for them."""
        known = self._authorization.get(host.base, "")
        response = await self._followed(host, url, headers, known)
        if response.status != 401:
            return response
        challenges = response.challenges
        response.close()
        obtained = await self._authenticate(host, url, parse_challenges(challenges))
        if not obtained:
            raise _Refused(401, "401: credentials are needed")
        response = await self._followed(host, url, headers, obtained)
        if response.status == 401:
            response.close()
            raise _Refused(401, "401: credentials were refused")
        self._authorization[host.base] = obtained
        return response

    async def _followed(self, host: Host, url: str, headers: Sequence[tuple[str, str]], authorization: str) -> Response:
        """Follows redirects. Another origin gets neither credentials nor the host's own headers and certificates."""
        origin = _origin(url)
        for _ in range(self.pulling.redirects + 1):
            ours = _origin(url) == origin
            secret = [*host.headers, *([("Authorization", authorization)] if authorization else [])] if ours else []
            response = await self.http.request(
                "GET", url, headers=[*headers, *secret], tls=host.tls if ours else replace(host.tls, client=())
            )
            if response.status not in _REDIRECTS:
                return response
            location = urljoin(url, response.headers.get("location", ""))
            response.close()
            if urlsplit(location).scheme not in ("http", "https"):
                raise _Refused(
                    response.status, f"{response.status}: redirects to {location[:200]!r}, which is not a URL"
                )
            if url.startswith("https:") and not location.startswith("https:"):
                raise _Refused(response.status, f"{response.status}: redirects from TLS to plain HTTP")
            url = location
        raise _Refused(310, f"more than {self.pulling.redirects} redirects")

    async def _authenticate(self, host: Host, url: str, challenges: Sequence[Challenge]) -> str:
        """Returns the header Authorization for a host; empty when it asks for something that we do not have."""
        login = self.login if host.gets_login else ANONYMOUS
        if login.registry_token:
            return f"Bearer {login.registry_token}"
        for challenge in challenges:
            if challenge.scheme == "bearer":
                return f"Bearer {await self._token(host, url, challenge, login)}"
            if challenge.scheme == "basic" and login.basic:
                return login.basic
        return ""

    async def _token(self, host: Host, url: str, challenge: Challenge, login: Login) -> str:
        asked = token_request(challenge, self.path, login)
        if url.startswith("https:") and not asked.url.startswith("https:"):
            raise BadToken(f"the realm {asked.url[:200]!r} is plain HTTP, and the registry speaks TLS")
        tls = host.tls if _origin(asked.url) == _origin(url) else replace(host.tls, client=())
        try:
            response = await self.http.request(asked.method, asked.url, headers=asked.headers, body=asked.body, tls=tls)
        except (Unreachable, Interrupted) as error:
            raise BadToken(f"token server {urlsplit(asked.url).netloc}: {error}") from error
        try:
            body = await _beginning(response, self.pulling.token)
        finally:
            response.close()
        if response.status != 200:
            words = describe_error(response.status, body)
            raise _Refused(response.status, f"token server {urlsplit(asked.url).netloc}: {words}")
        return parse_token(body)


@dataclass(slots=True)
class _Blob:
    """A blob that is being written: what has come so far, and its digest."""

    descriptor: Descriptor
    file: BinaryIO
    progress: Callable[[int], None]
    size: int = 0
    _hash: "hashlib._Hash" = dataclasses.field(default_factory=hashlib.sha256)

    def restart(self) -> None:
        self.progress(-self.size)
        self.file.seek(0)
        self.file.truncate()
        self.size, self._hash = 0, hashlib.sha256()

    def add(self, piece: bytes, source: str) -> None:
        if self.size + len(piece) > self.descriptor.size:
            raise BadImage(
                f"{source}: {self.descriptor.digest}",
                f"has more than the {self.descriptor.size} bytes of its descriptor",
            )
        self.file.write(piece)
        self._hash.update(piece)
        self.size += len(piece)
        self.progress(len(piece))

    def finish(self, source: str) -> None:
        """Raises Interrupted for a body that ended early, BadImage for other content."""
        if self.size < self.descriptor.size:
            raise Interrupted(f"ended after {self.size} of {self.descriptor.size} bytes")
        if (digest := f"sha256:{self._hash.hexdigest()}") != self.descriptor.digest:
            raise BadImage(f"{source}: {self.descriptor.digest}", f"digest mismatch: it is {digest}")


def _media_type(response: Response) -> str:
    """Returns the type of a manifest or an index. Other types, such as `text/plain` of a server for files, say nothing
    of images and count as none: the content decides."""
    type_ = response.headers.get("content-type", "").partition(";")[0].strip()
    return type_ if type_ in MANIFESTS or type_ in INDEXES else ""


async def _pieces(response: Response, size: int) -> AsyncIterator[bytes]:
    """Reads a body, of which `size` bytes are expected; -1 if that is unknown.

    A chunked body that is cut after the last expected byte, before its last chunk, is whole. It must not be taken up
    again: a host answers 416 to a request for the bytes after the last.
    """
    while True:
        try:
            piece = await response.read()
        except Interrupted:
            if size:
                raise
            return
        if not piece:
            return
        size -= len(piece)
        yield piece


async def _bounded(response: Response, limit: int, field: str, size: int = -1) -> bytes:
    """Reads a whole body, of this size if that is known. Raises OverLimit beyond the limit."""
    data = bytearray()
    async for piece in _pieces(response, size):
        data += piece
        if len(data) > limit:
            raise OverLimit(field, f"has more than {limit} bytes")
    return bytes(data)


async def _beginning(response: Response, limit: int) -> bytes:
    """Reads a body up to a limit, and leaves the rest."""
    data = b""
    while len(data) < limit and (piece := await response.read()):
        data += piece
    return data[:limit]


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port
