"""Container runtimes with an image and a network, each on an island of its own: ours, and Debian's containerd."""

import contextlib
import io
import json
import socket
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.island import Island, island
from benchmarks.machine import CannotMeasure, program
from benchmarks.server import DEADLINE, PODWIRE
from podwire.runtime.images import Images, build
from podwire.runtime.images.documents import digest_of
from podwire.runtime.images.platforms import this_machine

IMAGE = build.ROOT_REFERENCE
CONTAINERD = ("containerd", "ctr", "containerd-shim-runc-v2")
PAUSE = "podwire.local/pause:latest"
REFERENCE_PLACES = (Path("/usr/lib/cni"), Path(__file__).parents[1] / ".venv/debian/usr/lib/cni")

CONFIG = """
version = 2
root = "{place}/root"
state = "{place}/state"
disabled_plugins = [
    "io.containerd.internal.v1.opt",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = "{place}/cri.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "{networks}"
bin_dir = "{plugins}"
"""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that listens."""

    socket: Path
    cgroup_parent: str
    at: Island


def reference_plugins() -> Path:
    """The directory of the CNI plugins of all runtimes."""
    for reference_place in REFERENCE_PLACES:
        if (reference_place / "bridge").exists():
            return reference_place
    raise CannotMeasure("there are no reference CNI plugins; `scripts/setup` sees to it")


def network(**keys: Any) -> dict[str, Any]:
    """A plugin's configuration: bridge, with addresses of host-local."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {"type": "bridge", "bridge": "bench0", "isGateway": True, "ipam": ipam, **keys}


@contextlib.contextmanager
def podwire(plugins: Path) -> Iterator[Runtime]:
    with island() as at:
        images = Images(at.place / "var/lib/podwire/images")
        try:
            build.build_root(images)
        finally:
            images.close()
        _configure(at)
        runtime = Runtime(at.place / "cri.sock", at.cgroup_parent, at)
        command = [*PODWIRE, "runtime", "--prefix", str(at.place), "--socket", str(runtime.socket)]
        at.start([*command, "--cni-bin-dir", str(plugins)], lambda: _listens(runtime.socket))
        yield runtime


def has_containerd(plugins: Path) -> bool:
    """Whether it is there with all that it calls."""
    try:
        return all(map(program, (*CONTAINERD, "runc"))) and (plugins / "loopback").exists()
    except CannotMeasure:
        return False


@contextlib.contextmanager
def containerd(plugins: Path) -> Iterator[Runtime]:
    """One of which nothing is missing."""
    with island() as at:
        _configure(at)
        yield start_containerd(at, plugins, at.place / "etc/cni/net.d")


def start_containerd(at: Island, plugins: Path, networks: Path) -> Runtime:
    """With the images that pods need."""
    binary, ctr, shim = (program(each) for each in CONTAINERD)
    config = at.place / "config.toml"
    config.write_text(CONFIG.format(place=at.place, pause=PAUSE, plugins=plugins, networks=networks), encoding="utf-8")
    runtime = Runtime(at.place / "cri.sock", at.cgroup_parent, at)
    # It looks for its shim on PATH.
    words = ["sh", "-c", 'PATH=$1:$PATH; shift; exec "$@"', "sh", str(Path(shim).parent), binary]
    at.start([*words, "--config", str(config)], lambda: _listens(runtime.socket))
    archive = at.place / "images.tar"
    archive.write_bytes(_archive({IMAGE: ["sh"], PAUSE: ["sleep", "1000000"]}))
    _run(ctr, "--address", runtime.socket, "--namespace", "k8s.io", "images", "import", archive)
    return runtime


def _configure(at: Island) -> None:
    directory = at.place / "etc/cni/net.d"
    directory.mkdir(parents=True)
    conflist = {"cniVersion": "1.0.0", "name": "bench", "plugins": [network()]}
    (directory / "10-bench.conflist").write_text(json.dumps(conflist), encoding="utf-8")


def _archive(commands: Mapping[str, list[str]]) -> bytes:
    """Returns an archive like that of `docker save`, of images that differ in their commands."""
    layer = build.root_layer(build.BUSYBOX)
    files, rows = {"layer.tar": layer}, []
    for number, (reference, command) in enumerate(commands.items()):
        rootfs = {"type": "layers", "diff_ids": [digest_of(layer)]}
        settings = {"Cmd": command, "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}
        config = {"architecture": this_machine().architecture, "os": "linux", "config": settings, "rootfs": rootfs}
        files[f"{number}.json"] = json.dumps(config).encode()
        rows.append({"Config": f"{number}.json", "RepoTags": [reference], "Layers": ["layer.tar"]})
    files["manifest.json"] = json.dumps(rows).encode()
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return whole.getvalue()


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE)
    if done.returncode:
        raise CannotMeasure(f"{command[0]}: {done.stderr.strip()[-1000:]}")


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as door:
        return door.connect_ex(str(path)) == 0
