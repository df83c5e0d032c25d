"""Garbage collection of images; the runtime is a stand-in that speaks CRI's messages."""

import asyncio
from types import SimpleNamespace

import pytest

from podwire.kubelet.images.garbage_collection import ImageGarbageCollector, ImageGcFailed, ImageGcSettings
from podwire.kubelet.images.pulled_images import PulledImages
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import FailedPrecondition
from tests.eventually import eventually_async

MIB = 1 << 20


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Node:
    """A disk of 100 MiB that has images, and nothing else."""

    def __init__(self, directory) -> None:
        self.pulled = PulledImages(directory)
        self.images: dict[str, pb.Image] = {}
        self.used: list[str] = []
        self.refused: set[str] = set()
        self.other_files = 0
        self.size = 100 * MIB
        self.events: list[tuple[str, str, str]] = []
        self.clock = Clock()

    def add(self, *names: str, size: int = 30 * MIB, pinned: bool = False) -> None:
        for name in names:
            self.images[name] = pb.Image(id=name, size=size, pinned=pinned)

    async def call(self, method, request, *, timeout):  # noqa: ASYNC109 - the port's own
        if method is methods.LIST_IMAGES:
            return pb.ListImagesResponse(images=list(self.images.values()))
        if method is methods.LIST_CONTAINERS:
            return pb.ListContainersResponse(containers=[pb.Container(image_id=name) for name in self.used])
        if method is methods.IMAGE_STATUS:
            return pb.ImageStatusResponse(image=self.images.get(request.image.image))
        if method is methods.REMOVE_IMAGE:
            if request.image.image in self.refused:
                raise FailedPrecondition(f"{request.image.image} is in use")
            self.images.pop(request.image.image)
            return pb.RemoveImageResponse()
        usage = pb.FilesystemUsage()
        usage.fs_id.mountpoint = "/images"
        return pb.ImageFsInfoResponse(image_filesystems=[usage])

    def left(self, _directory):
        taken = self.other_files + sum(image.size for image in self.images.values())
        return SimpleNamespace(disk=max(0, self.size - taken), disk_size=self.size)

    def collector(self, **settings) -> ImageGarbageCollector:
        record = lambda *words: self.events.append(words)  # noqa: E731 - one line is enough
        return ImageGarbageCollector(self, self.clock, self, record, self.pulled, ImageGcSettings(**settings))


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


async def test_above_the_high_threshold_images_go_until_the_low_one_is_reached(node):
    node.add("a", "b", "c")
    collector = node.collector()
    with pytest.raises(ImageGcFailed):
        await collector.collect()  # all are younger than the minimum age
    assert sorted(node.images) == ["a", "b", "c"]
    node.clock.now += 200
    await collector.collect()
    assert sorted(node.images) == ["b", "c"]
    await collector.collect()
    assert sorted(node.images) == ["b", "c"]  # 60 % is below 85 %


async def test_images_that_were_used_longest_ago_go_first_and_used_or_pinned_ones_stay(node):
    node.add("old", "newer", "used", "pinned", size=24 * MIB)
    node.images["pinned"].pinned = True
    collector = node.collector(low=0)
    node.used = ["old", "used"]
    with pytest.raises(ImageGcFailed):
        await collector.collect()
    node.clock.now += 200
    node.used = ["newer", "used"]
    with pytest.raises(ImageGcFailed):
        await collector.collect()
    assert "old" not in node.images
    node.clock.now += 200
    node.used = ["used"]
    assert await collector.remove_unused() == 24 * MIB
    assert sorted(node.images) == ["pinned", "used"]


async def test_a_disk_that_other_files_fill_is_an_event_in_upstreams_words(node):
    node.add("a", size=10 * MIB)
    node.other_files = 88 * MIB
    collector = node.collector()
    with pytest.raises(ImageGcFailed):
        await collector.collect()
    node.clock.now += 200
    with pytest.raises(ImageGcFailed):
        await collector.collect()
    assert node.images == {}
    message = (
        "Insufficient free disk space on the node's image filesystem (98% of 100.0 MiB used). "
        f"Failed to free sufficient space by deleting unused images (freed {10 * MIB} bytes). "
        "Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
    )
    assert node.events[-1] == ("Warning", "FreeDiskSpaceFailed", message)


async def test_an_image_that_the_runtime_keeps_does_not_save_the_others(node):
    node.add("a", "b", "c")
    node.refused = {"a"}
    collector = node.collector(min_age=0.0)
    with pytest.raises(ImageGcFailed, match=r"wanted to free .* with errors in image deletion: a is in use"):
        await collector.collect()
    assert sorted(node.images) == ["a", "c"]


async def test_images_beyond_the_maximum_age_go_whatever_the_disk_usage(node):
    node.add("a", size=MIB)
    collector = node.collector(max_age=3600.0)
    collector._began = node.clock.now
    node.used = ["a"]
    await collector.collect()
    node.used = []
    node.clock.now += 3000
    await collector.collect()
    assert "a" in node.images
    node.clock.now += 700
    await collector.collect()
    assert node.images == {}


async def test_a_failure_is_an_event_when_it_repeats(node):
    node.add("a")
    node.size = 0
    collector = node.collector(period=0.01)
    task = asyncio.create_task(collector.run())
    try:
        failed = ("Warning", "ImageGCFailed", "invalid capacity 0 on image filesystem")
        await eventually_async(lambda: failed in node.events, 5)
    finally:
        task.cancel()
    assert node.events[0][1] == "InvalidDiskCapacity"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"high": 101}, r"invalid HighThresholdPercent 101, must be in range \[0-100\]"),
        ({"low": -1}, r"invalid LowThresholdPercent -1, must be in range \[0-100\]"),
        ({"high": 50, "low": 60}, "LowThresholdPercent 60 can not be higher than HighThresholdPercent 50"),
    ],
)
def test_wrong_thresholds_are_refused_in_upstreams_words(settings, words):
    with pytest.raises(ValueError, match=words):
        ImageGcSettings(**settings)


async def test_the_access_of_images_that_are_gone_is_forgotten(node):
    node.add("a", "b", size=MIB)
    for name in ("a", "b"):
        node.pulled.begin(name)
        node.pulled.succeeded(name, "r.test/x", name, None)
    del node.images["a"]
    await node.collector().collect()
    assert node.pulled.known() == {"b"}


async def test_with_a_threshold_of_100_images_go_only_when_a_node_is_short_of_disk_space(node):
    node.add("a", "b", "c")
    collector = node.collector(high=100, period=0.01)
    task = asyncio.create_task(collector.run())
    try:
        await eventually_async(lambda: collector._seen, 5)
        node.clock.now += 200
        await asyncio.sleep(0.1)
        assert sorted(node.images) == ["a", "b", "c"]
        await collector.remove_unused()
        assert node.images == {}  # their age was observed meanwhile
    finally:
        task.cancel()


async def test_an_image_that_a_pod_mounts_as_a_volume_stays(node):
    node.add("a", "b", "c")
    collector = node.collector()
    collector.volumes = lambda: ["a", "missing"]
    await collector.observe()
    node.clock.now += 200
    await collector.collect()
    assert sorted(node.images) == ["a", "c"]
