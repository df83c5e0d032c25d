"""Pulls an image: resolves its name, downloads what is missing, and commits it like an import.

1. The manifest of the tag or digest; of an index, the row for this machine.
2. The config.
3. Missing layers, several at a time.
4. Layers are unpacked in their order, each as soon as it is there, while others are still coming.
5. The commit of `importer`, after which the image exists. A failure or cancellation before that leaves nothing.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from podwire.protocols.distribution import BadHosts, Host, Login
from podwire.protocols.distribution.http import Http
from podwire.runtime.images import documents, references
from podwire.runtime.images.contents import ArchiveImage, Layer
from podwire.runtime.images.documents import Descriptor, chain_ids
from podwire.runtime.images.errors import BadImage, OverLimit, PullFailed
from podwire.runtime.images.image import Image
from podwire.runtime.images.platforms import Platform
from podwire.runtime.images.references import Reference
from podwire.runtime.images.registry import ANONYMOUS, PullLimits, Repository
from podwire.runtime.images.staging import translate_full_disk
from podwire.runtime.images.store import Images
from podwire.tasks.uncancelled import thread_to_completion, to_completion

_NESTED = 4
LOCAL = "podwire.local"

Progress = Callable[["Transfer"], None]
FindHosts = Callable[[str], Sequence[Host]]
"""Returns the hosts of a registry. Raises BadHosts."""


@dataclass(slots=True)
class Transfer:
    """How far a pull is: bytes and layers that have to be downloaded, and those that have come."""

    layers: int = 0
    bytes: int = 0
    layers_done: int = 0
    bytes_done: int = 0


def ignore_progress(_transfer: Transfer) -> None:
    """The default where nobody watches."""


class Puller:
    """Pulls images into a store. Pulls of the same image with the same credentials at the same time are one."""

    def __init__(self, images: Images, http: Http, find_hosts: FindHosts, *, pulling: PullLimits | None = None) -> None:
        self._images = images
        self._http = http
        self._find_hosts = find_hosts
        self._pulling = pulling or PullLimits()
        self._shared: dict[tuple[Reference, Login], _Shared] = {}
        # Threads of their own: each waits for layers that are still coming.
        self._threads = ThreadPoolExecutor(self._pulling.unpacking, thread_name_prefix="podwire-pull")

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    async def pull(self, name: str, login: Login = ANONYMOUS, progress: Progress = ignore_progress) -> Image:
        """Returns the image, which the store has from now on. Raises ImageError.

        A name that was imported here, and never pulled, means what was imported: the registry is not asked. Neither is
        there one for names that begin with `podwire.local`.
        """
        reference = references.parse(name)
        present = await asyncio.to_thread(self._images.imported, reference)
        if present is not None:
            return present
        if reference.repository.startswith(f"{LOCAL}/"):
            raise PullFailed(f"{reference}: images of {LOCAL} are built on a machine, and in no registry", missing=True)
        key = reference, login
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _Shared(asyncio.create_task(self._pull(reference, login, progress)))
        shared.waiting += 1
        try:
            await asyncio.wait([shared.task])
            return shared.task.result()
        finally:
            shared.waiting -= 1
            if not shared.waiting:
                self._shared.pop(key, None)
                if not shared.task.done():
                    shared.task.cancel()
                    await to_completion(asyncio.wait([shared.task]))

    async def _pull(self, reference: Reference, login: Login, progress: Progress) -> Image:
        registry, _, path = reference.repository.partition("/")
        try:
            hosts = await asyncio.to_thread(self._find_hosts, registry)
        except (BadHosts, OSError) as error:
            raise PullFailed(f"{registry}: {error}") from error
        limits = self._images.limits
        repository = Repository(registry, path, hosts, self._http, login, limits, self._pulling)
        try:
            image = await self._resolve(repository, reference)
            stack = contextlib.ExitStack()
            directory = await thread_to_completion(stack.enter_context, self._images.stage())
            try:
                return await self._fetch(repository, image, directory, progress)
            finally:
                await thread_to_completion(stack.close)
        except BadImage as error:
            raise PullFailed(f"{reference}: {error}") from error
        except PullFailed as error:
            raise PullFailed(f"{reference}: {error}", missing=error.missing, denied=error.denied) from error

    async def _resolve(self, repository: Repository, reference: Reference) -> ArchiveImage:
        """Follows indexes to the manifest for this machine, and reads the config."""
        limits, machine = self._images.limits, self._images.machine
        manifest = await repository.manifest(reference.digest or reference.tag)
        through = [manifest.digest]
        document = documents.parse_document(manifest.data, manifest.media_type, manifest.digest)
        while document.manifests is not None:
            if len(through) > _NESTED:
                raise OverLimit(manifest.digest, f"indexes are nested more than {_NESTED} deep")
            # A row without a platform may be anything, so it comes after those that say that they suit.
            ranks = [(machine.rank(row.runs_on() or Platform()), row) for row in document.manifests]
            suiting = sorted(((rank, row) for rank, row in ranks if rank is not None), key=lambda pair: pair[0])
            unsaid = [row for row in document.manifests if row.runs_on() is None]
            rows = [row for _rank, row in suiting] + unsaid
            if not rows:
                offered = ", ".join(sorted({str(row.runs_on()) for row in document.manifests})) or "nothing"
                raise BadImage("platform", f"nothing for {machine} in the index; it has {offered[:300]}")
            manifest = await repository.manifest(rows[0].digest)
            if len(manifest.data) != rows[0].size:
                raise BadImage(rows[0].digest, f"has {len(manifest.data)} bytes, not {rows[0].size}")
            through.append(manifest.digest)
            document = documents.parse_document(manifest.data, rows[0].media_type, manifest.digest)
        config, layers = documents.check_manifest(document, limits, manifest.digest)
        if sum(layer.size for layer in layers) > limits.data:
            raise OverLimit(f"{manifest.digest}.layers", f"have more than {limits.data} bytes")
        raw = await repository.document(config)
        parsed = documents.parse_config(raw, len(layers), config.digest, limits)
        if machine.rank(parsed.runs_on) is None:
            raise BadImage("platform", f"the image is for {parsed.runs_on}, and this machine is {machine}")
        pairs = zip(layers, parsed.diff_ids, strict=True)
        return ArchiveImage(
            config=raw,
            layers=tuple(Layer(layer.digest, diff_id, layer) for layer, diff_id in pairs),
            manifest=manifest.data,
            names=(str(reference),),
            digests=tuple(through),
        )

    async def _fetch(self, repository: Repository, image: ArchiveImage, directory: Path, progress: Progress) -> Image:
        """Downloads missing layers while a thread unpacks those that are there, and commits."""
        chains = chain_ids(image.diff_ids)
        present = await asyncio.to_thread(self._images.present_layers, chains)
        missing = [layer for layer, chain in zip(image.layers, chains, strict=True) if chain not in present]
        downloads = _Downloads(repository, image.layers, directory, progress, self._pulling.parallel)
        fetching: asyncio.Future[None] = asyncio.create_task(downloads.fetch_all([layer.path for layer in missing]))
        importing: asyncio.Future[Image] = asyncio.wrap_future(
            self._threads.submit(self._images.import_pulled, downloads, image)
        )
        work: list[asyncio.Future[Any]] = [fetching, importing]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            downloads.cancel()
            await to_completion(asyncio.wait(work))
            # Both are read: an exception that nobody reads is logged by asyncio with a traceback.
            failures = [error for future in work if not future.cancelled() and (error := future.exception())]
        if failures:
            raise failures[0]
        return importing.result()


@dataclass(slots=True)
class _Shared:
    task: "asyncio.Task[Image]"
    waiting: int = 0


class _Downloads:
    """Layers as an archive: the thread that unpacks waits in `open` until a layer has come."""

    def __init__(
        self, repository: Repository, layers: Sequence[Layer], directory: Path, progress: Progress, parallel: int
    ) -> None:
        self._repository = repository
        self._descriptors = {layer.path: layer.descriptor for layer in layers if layer.descriptor is not None}
        self._directory = directory
        self._progress = progress
        self._transfer = Transfer()
        self._parallel = asyncio.Semaphore(parallel)
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[str, asyncio.Task[Path]] = {}
        self._cancelled = False

    # For the thread

    def has(self, name: str) -> bool:
        return name in self._descriptors

    def size(self, name: str) -> int:
        return self._descriptors[name].size

    def open(self, name: str) -> BinaryIO:
        path = asyncio.run_coroutine_threadsafe(self._arrived(name), self._loop).result()
        return path.open("rb", buffering=0)

    # For the event loop

    async def fetch_all(self, names: Sequence[str]) -> None:
        await asyncio.gather(*[self._arrived(name) for name in dict.fromkeys(names)])

    def cancel(self) -> None:
        self._cancelled = True
        for task in self._tasks.values():
            task.cancel()

    async def _arrived(self, name: str) -> Path:
        """Also for a layer that was there at first: it may have been removed with another image since."""
        if self._cancelled:
            raise asyncio.CancelledError
        task = self._tasks.get(name)
        if task is None:
            descriptor = self._descriptors[name]
            self._transfer.layers += 1
            self._transfer.bytes += descriptor.size
            task = self._tasks[name] = asyncio.create_task(self._download(descriptor))
        await asyncio.wait([task])
        return task.result()

    async def _download(self, descriptor: Descriptor) -> Path:
        path = self._directory / descriptor.digest.removeprefix("sha256:")
        async with self._parallel:
            with translate_full_disk(), path.open("xb", buffering=0) as file:
                await self._repository.download(descriptor, file, self._came)
        self._transfer.layers_done += 1
        self._came(0)
        return path

    def _came(self, size: int) -> None:
        self._transfer.bytes_done += size
        self._progress(self._transfer)
