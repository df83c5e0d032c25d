"""Measures an image of five layers: pulls from Debian's docker-registry on loopback, and imports of an archive by the
command lines; ours and containerd."""

import asyncio
import contextlib
import gzip
import hashlib
import io
import json
import os
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.island import Island
from benchmarks.machine import DISK, CannotMeasure, program
from benchmarks.runtimes import Runtime, containerd, has_containerd, podwire, reference_plugins
from benchmarks.server import DEADLINE, PODWIRE
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError
from podwire.runtime.images.platforms import this_machine
from podwire.transports.grpc_client import GrpcClient, connect

HOST = "127.0.0.1:5000"
IMAGE = f"{HOST}/bench/image:1"
IMPORTED = "example.test/bench/imported:1"
"""The name in the archive."""
LAYERS, FILES, FILE_BYTES = 5, 40, 512 << 10
"""100 MB in files; half of each file does not compress."""
PULLS_PER_SECOND = 1.0
OCI = "application/vnd.oci.image"


def measure(seconds: float) -> Iterator[Figure]:
    """The runtimes take turns, pull by pull; each has a registry beside it, all with the same files."""
    plugins = reference_plugins()
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-")))
        runtimes = {"podwire": stack.enter_context(podwire(plugins))}
        if has_containerd(plugins):
            runtimes["containerd"] = stack.enter_context(containerd(plugins))
        for name, runtime in runtimes.items():
            stack.enter_context(_registry(runtime.at, place, name))
        _push(runtimes["podwire"].at, place)
        repeated = max(2, round(PULLS_PER_SECOND * seconds))
        try:
            pulls = asyncio.run(_drive(runtimes, repeated))
        except RpcError as error:
            raise CannotMeasure(f"a runtime did not pull: {error}") from error
        imports = _import_all(runtimes, place, repeated)
    group = f"Images, {LAYERS} layers with {LAYERS * FILES * FILE_BYTES // 1_000_000} MB, registry on loopback"
    for what, times in (("PullImage", pulls), ("import of an archive", imports)):
        medians = {name: statistics.median(taken) for name, taken in times.items()}
        theirs = medians.get("containerd")
        budget = 1.0 if times is pulls else None
        peer = Peer("containerd", theirs, budget, MEASURED) if theirs else None
        yield Figure(group=group, what=what, value=medians["podwire"], unit=" s", peer=peer)


async def _drive(runtimes: dict[str, Runtime], pulls: int) -> dict[str, list[float]]:
    async with contextlib.AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(connect(runtime.socket)) for name, runtime in runtimes.items()}
        times: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(pulls):
            for name, client in clients.items():
                times[name].append(await _pull(client))
        return times


async def _pull(client: GrpcClient) -> float:
    image = pb.ImageSpec(image=IMAGE)
    started = time.perf_counter()
    await client.call(methods.PULL_IMAGE, pb.PullImageRequest(image=image), timeout=DEADLINE)
    took = time.perf_counter() - started
    await client.call(methods.REMOVE_IMAGE, pb.RemoveImageRequest(image=image), timeout=DEADLINE)
    return took


def _import_all(runtimes: dict[str, Runtime], place: Path, repeated: int) -> dict[str, list[float]]:
    """Both commands unpack the layers; the image is removed after each import."""
    archive = place / "image.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(place / "layout", arcname=".")
    times: dict[str, list[float]] = {name: [] for name in runtimes}
    for _ in range(repeated):
        for name, runtime in runtimes.items():
            if name == "podwire":
                images, options = [*PODWIRE, "image"], ["--prefix", str(runtime.at.place)]
            else:
                images = [program("ctr"), "--address", str(runtime.socket), "--namespace", "k8s.io", "images"]
                options = []
            started = time.perf_counter()
            _run(runtime.at, [*images, "import", *options, str(archive)])
            times[name].append(time.perf_counter() - started)
            _run(runtime.at, [*images, "remove", *(options or ["--sync"]), IMPORTED])
    return times


def _run(at: Island, command: list[str]) -> None:
    done = subprocess.run(at.inside(command), capture_output=True, text=True, check=False, timeout=DEADLINE)
    if done.returncode:
        raise CannotMeasure(f"{' '.join(command)}: {done.stderr.strip()[-1000:]}")


@contextlib.contextmanager
def _registry(at: Island, place: Path, name: str) -> Iterator[None]:
    config = place / f"{name}.yml"
    storage = {"filesystem": {"rootdirectory": str(place / "registry")}}
    config.write_text(json.dumps({"version": 0.1, "storage": storage, "http": {"addr": HOST}}), encoding="utf-8")
    with (place / f"{name}.log").open("wb") as log:
        command = at.inside([program("docker-registry"), "serve", str(config)])
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        asks = at.inside(["sh", "-c", f"echo | busybox nc -w 1 {HOST.replace(':', ' ')}"])
        until = time.perf_counter() + DEADLINE
        while subprocess.run(asks, capture_output=True, check=False).returncode:
            if process.poll() is not None or time.perf_counter() > until:
                raise CannotMeasure(f"docker-registry did not come up: {(place / f'{name}.log').read_text()[-1000:]}")
            time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()


def _push(at: Island, place: Path) -> None:
    layout = place / "layout"
    _write_layout(layout)
    words = [program("skopeo"), "--insecure-policy", "copy", "--dest-tls-verify=false"]
    command = at.inside([*words, f"oci:{layout}", f"docker://{IMAGE}"])
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE)
    if done.returncode:
        raise CannotMeasure(f"skopeo: {done.stderr.strip()[-1000:]}")


def _write_layout(layout: Path) -> None:
    """An image whose files are half noise, half zeros."""
    (layout / "blobs/sha256").mkdir(parents=True)

    def put(data: bytes, media_type: str) -> dict[str, str | int]:
        digest = hashlib.sha256(data).hexdigest()
        (layout / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    plain = [_layer(number) for number in range(LAYERS)]
    layers = [put(gzip.compress(layer, 6, mtime=0), f"{OCI}.layer.v1.tar+gzip") for layer in plain]
    diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in plain]
    settings = {
        "architecture": this_machine().architecture,
        "os": "linux",
        "config": {"Cmd": ["sh"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    config = put(json.dumps(settings).encode(), f"{OCI}.config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": config, "layers": layers}
    row = put(json.dumps(manifest).encode(), f"{OCI}.manifest.v1+json")
    named = {**row, "annotations": {"io.containerd.image.name": IMPORTED}}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}), encoding="utf-8")
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}', encoding="utf-8")


def _layer(number: int) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for file in range(FILES):
            info = tarfile.TarInfo(f"layer{number}/file{file}")
            info.size = FILE_BYTES
            tar.addfile(info, io.BytesIO(os.urandom(FILE_BYTES // 2) + bytes(FILE_BYTES // 2)))
    return whole.getvalue()
