"""Image garbage collection: removes unused images when the disk of images is nearly full, and those that are too old.

Upstream's rules: above the high threshold of disk usage, images are removed, those first that were used longest ago,
until the low threshold is reached. Images that a container has, that are pinned, or that are younger than the minimum
age stay. Times of use are observed, so a restart of the kubelet begins anew.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from podwire.interfaces import Clock
from podwire.kubelet.images.pulled_images import PulledImages
from podwire.kubelet.node.settings import Machine
from podwire.kubelet.ports import Cri
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.k8sapi.client_side.events import WARNING

log = logging.getLogger(__name__)

RecordNodeEvent = Callable[[str, str, str], None]
"""Records an event about the node: type, reason, message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageGcSettings:
    """Percent of the disk, and seconds. Raises ValueError, in upstream's words."""

    high: int = 85
    low: int = 80
    min_age: float = 120.0
    """Before that, an image may be about to be used."""
    max_age: float = 0.0
    """Images that were not used for so long are removed whatever the disk usage; 0: never."""
    period: float = 300.0
    call: float = 120.0
    """Timeout of a call to the runtime."""

    def __post_init__(self) -> None:
        for name, percent in (("HighThresholdPercent", self.high), ("LowThresholdPercent", self.low)):
            if not 0 <= percent <= 100:
                raise ValueError(f"invalid {name} {percent}, must be in range [0-100]")
        if self.low > self.high:
            raise ValueError(f"LowThresholdPercent {self.low} can not be higher than HighThresholdPercent {self.high}")

    @property
    def disabled(self) -> bool:
        return self.high == 100 and not self.max_age


class ImageGcFailed(Exception):
    """Images could not be removed, or not enough of them; upstream's words."""


@dataclass(slots=True)
class _Seen:
    """An image since it was first seen."""

    first: float
    last_used: float
    size: int = 0
    pinned: bool = False


@dataclass(slots=True)
class ImageGarbageCollector:
    cri: Cri
    clock: Clock
    machine: Machine
    record: RecordNodeEvent
    pulled: PulledImages
    settings: ImageGcSettings = field(default_factory=ImageGcSettings)
    volumes: Callable[[], Iterable[str]] = tuple
    """References of images that pods of this node mount as volumes."""
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _began: float = 0.0

    async def run(self) -> None:
        """Works until cancelled. A failure is an event when it repeats: the first may only be early.

        Images are observed even if nothing is collected: `remove_unused` has to know their age.
        """
        self._began = self.clock.monotonic()
        failed = False
        while True:
            try:
                await (self.observe() if self.settings.disabled else self.collect())
                failed = False
            except (ImageGcFailed, RpcError, OSError) as error:
                if failed:
                    self.record(WARNING, "ImageGCFailed", str(error))
                log.warning("cannot collect unused images", extra={"error": str(error), "repeated": failed})
                failed = True
            await asyncio.sleep(self.settings.period)

    async def collect(self) -> None:
        """Removes images that are too old, and others as far as disk usage demands it. Raises ImageGcFailed."""
        async with self._lock:
            now = self.clock.monotonic()
            images = await self._candidates(now)
            if self.settings.max_age and now - self._began > self.settings.max_age:
                old = [id_ for id_ in images if now - self._seen[id_].last_used > self.settings.max_age]
                await self._remove(old, None, f"images older than {self.settings.max_age:g}s")
                images = [id_ for id_ in images if id_ in self._seen]
            available, capacity = await self._disk()
            used = 100 - available * 100 // capacity
            if used < self.settings.high:
                return
            excess = capacity * (100 - self.settings.low) // 100 - available
            log.info("disk of images is nearly full", extra={"used": used, "free": excess})
            freed = await self._remove(self._old_enough(images, now), excess, f"{excess} bytes")
            if freed < excess:
                message = (
                    f"Insufficient free disk space on the node's image filesystem ({used}% of {_size(capacity)} used). "
                    f"Failed to free sufficient space by deleting unused images (freed {freed} bytes). "
                    "Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
                )
                self.record(WARNING, "FreeDiskSpaceFailed", message)
                raise ImageGcFailed(message)

    async def observe(self) -> None:
        """Notes which images are there and used."""
        async with self._lock:
            await self._candidates(self.clock.monotonic())

    async def remove_unused(self) -> int:
        """Removes all images that nothing uses, for a node that is short of disk space. Returns the bytes."""
        async with self._lock:
            now = self.clock.monotonic()
            images = await self._candidates(now)
            return await self._remove(self._old_enough(images, now), None, "all unused images")

    async def _candidates(self, now: float) -> list[str]:
        """Returns unused images, those first that were used longest ago, then the oldest."""
        known = self.pulled.known()
        listed = await self.cri.call(methods.LIST_IMAGES, pb.ListImagesRequest(), timeout=self.settings.call)
        containers = await self.cri.call(
            methods.LIST_CONTAINERS, pb.ListContainersRequest(), timeout=self.settings.call
        )
        used = {
            name for container in containers.containers for name in (container.image_id, container.image_ref) if name
        }
        for reference in set(self.volumes()):
            request = pb.ImageStatusRequest(image=pb.ImageSpec(image=reference))
            used.add((await self.cri.call(methods.IMAGE_STATUS, request, timeout=self.settings.call)).image.id)
        for image in listed.images:
            seen = self._seen.setdefault(image.id, _Seen(now, 0.0))
            seen.size, seen.pinned = image.size, image.pinned
            if image.id in used:
                seen.last_used = now
        present = {image.id for image in listed.images}
        self._seen = {id_: seen for id_, seen in self._seen.items() if id_ in present}
        await asyncio.to_thread(self.pulled.prune, known, present)
        unused = [id_ for id_, seen in self._seen.items() if id_ not in used and not seen.pinned]
        return sorted(unused, key=lambda id_: (self._seen[id_].last_used, self._seen[id_].first))

    def _old_enough(self, images: Sequence[str], now: float) -> list[str]:
        return [id_ for id_ in images if now - self._seen[id_].first >= self.settings.min_age]

    async def _remove(self, images: Sequence[str], enough: int | None, what: str) -> int:
        """Removes images until enough bytes are free; goes on after an error, which is raised in the end."""
        freed, errors = 0, []
        for id_ in images:
            request = pb.RemoveImageRequest(image=pb.ImageSpec(image=id_))
            try:
                await self.cri.call(methods.REMOVE_IMAGE, request, timeout=self.settings.call)
            except RpcError as error:
                errors.append(str(error))
                continue
            size = self._seen.pop(id_).size
            log.info("removed unused image", extra={"image": id_, "bytes": size})
            freed += size
            if enough is not None and freed >= enough:
                break
        if errors:
            raise ImageGcFailed(
                f"wanted to free {what}, but freed {freed} bytes space with errors in image deletion: "
                f"{'; '.join(errors[:5])}"
            )
        return freed

    async def _disk(self) -> tuple[int, int]:
        answer = await self.cri.call(methods.IMAGE_FS_INFO, pb.ImageFsInfoRequest(), timeout=self.settings.call)
        directory = next((usage.fs_id.mountpoint for usage in answer.image_filesystems), "")
        left = await asyncio.to_thread(self.machine.left, directory) if directory else None
        if left is None or not left.disk_size:
            message = "invalid capacity 0 on image filesystem"
            self.record(WARNING, "InvalidDiskCapacity", message)
            raise ImageGcFailed(message)
        return min(left.disk, left.disk_size), left.disk_size


def _size(number: int) -> str:
    """A size as upstream prints it."""
    if number < 1024:
        return f"{number} B"
    size = float(number)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"
