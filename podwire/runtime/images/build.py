"""Images made here, for machines that reach no registry: one from this host's busybox, or one from any tar.

The same input makes the same digests, on any day and any machine: no times, no compression, everything in order.
"""

import io
import os
import re
import struct
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from podwire.linux.proc.processes import run
from podwire.runtime.images import documents
from podwire.runtime.images.contents import CONTAINERD_NAME
from podwire.runtime.images.documents import digest_of
from podwire.runtime.images.errors import BadImage
from podwire.runtime.images.image import Image
from podwire.runtime.images.platforms import this_machine
from podwire.runtime.images.references import parse
from podwire.runtime.images.store import Images

ROOT_REFERENCE = "podwire.local/busybox:latest"
BUSYBOX = Path("/bin/busybox")
_APPLET = re.compile(r"[A-Za-z0-9_.\[-]{1,64}", re.ASCII)
_LIST_SECONDS = 10.0
_INTERPRETER = 3
_COMMAND = ("sh",)
NOTHING: Mapping[str, bytes] = {}
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DIRECTORIES = {
    "bin": 0o755,
    "dev": 0o755,
    "etc": 0o755,
    "home": 0o755,
    "proc": 0o555,
    "root": 0o700,
    "run": 0o755,
    "sys": 0o555,
    "tmp": 0o1777,
    "usr": 0o755,
    "var": 0o755,
    "var/tmp": 0o1777,
    "var/www": 0o755,
}
_LINKS = {"sbin": "bin", "usr/bin": "../bin", "usr/sbin": "../bin", "var/run": "../run"}
_FILES = {
    "etc/passwd": (
        "root:x:0:0:root:/root:/bin/sh\n"
        "daemon:x:1:1:daemon:/usr/sbin:/bin/false\n"
        "www-data:x:33:33:www-data:/var/www:/bin/false\n"
        "nobody:x:65534:65534:nobody:/home:/bin/false\n"
    ),
    "etc/group": "root:x:0:\ndaemon:x:1:\ntty:x:5:\nwww-data:x:33:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def build_root(
    images: Images,
    reference: str = ROOT_REFERENCE,
    busybox: Path = BUSYBOX,
    command: Sequence[str] = _COMMAND,
    added: Mapping[str, bytes] = NOTHING,
) -> Image:
    """An image of this host's static busybox, with all that it can do under `/bin`. Raises BadImage, StoreFull.

    `added` are more files, by their paths in the image.
    """
    return build_image(images, reference, root_layer(busybox, added), _settings(command))


def archive_root(
    file: Path,
    reference: str = ROOT_REFERENCE,
    busybox: Path = BUSYBOX,
    command: Sequence[str] = _COMMAND,
    added: Mapping[str, bytes] = NOTHING,
) -> None:
    """The same image as the archive of an OCI layout, which every other runtime imports. Raises BadImage, OSError."""
    files = _layout(str(parse(reference)), root_layer(busybox, added), _settings(command))
    with tarfile.open(file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            info, content = _file(name, 0o644, data)
            tar.addfile(info, io.BytesIO(content))


def _settings(command: Sequence[str]) -> dict[str, Any]:
    return {"Cmd": list(command), "Env": [_PATH]}


def build_image(images: Images, reference: str, layer: bytes, settings: Mapping[str, Any]) -> Image:
    """An image of one layer, a tar, and of settings in the words of an image's config (`Cmd`, `Env`, `User`, …)."""
    with images.stage() as place:
        (place / "blobs" / "sha256").mkdir(parents=True)
        for name, data in _layout(reference, layer, settings).items():
            (place / name).write_bytes(data)
        return images.import_archive(place)[0]


def _layout(reference: str, layer: bytes, settings: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of an OCI image layout by their names."""
    diff_id = digest_of(layer)
    config = msgspec.json.encode(
        {
            "created": "1970-01-01T00:00:00Z",
            "architecture": this_machine().architecture,
            "os": "linux",
            "config": dict(sorted(settings.items())),
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        }
    )
    manifest = msgspec.json.encode(
        {
            "schemaVersion": 2,
            "mediaType": documents.OCI_MANIFEST,
            "config": _descriptor(documents.OCI_CONFIG, config),
            "layers": [_descriptor(documents.OCI_LAYER, layer)],
        }
    )
    row = _descriptor(documents.OCI_MANIFEST, manifest) | {"annotations": {CONTAINERD_NAME: reference}}
    index = {"schemaVersion": 2, "mediaType": documents.OCI_INDEX, "manifests": [row]}
    blobs = {f"blobs/{digest_of(blob).replace(':', '/')}": blob for blob in (config, manifest, layer)}
    return {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": msgspec.json.encode(index), **blobs}


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(blob), "size": len(blob)}


def root_layer(busybox: Path, added: Mapping[str, bytes] = NOTHING) -> bytes:
    """The tar of a small root file system around a static busybox. Raises BadImage."""
    more = {path.strip("/"): data for path, data in added.items()}
    for path in more:
        if not all(part not in ("", ".", "..") for part in path.split("/")) or path in (*_DIRECTORIES, *_LINKS):
            raise BadImage(path or "/", "is not a path of a file in the image")
    try:
        program = busybox.read_bytes()
    except OSError as error:
        raise BadImage(str(busybox), f"{error.strerror} (Debian: busybox-static)") from error
    if not _is_static(program):
        raise BadImage(str(busybox), "needs libraries of this host, or is not a program (Debian: busybox-static)")
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        members = {info.name: (info, data) for info, data in _members(program, applets(busybox))}
        for path, data in more.items():
            parents = ["/".join(path.split("/")[:depth]) for depth in range(1, path.count("/") + 1)]
            for parent in parents:
                members.setdefault(parent, (_member(parent, tarfile.DIRTYPE, 0o755), b""))
            members[path] = _file(path, 0o644, data)
        for _name, (info, data) in sorted(members.items()):
            tar.addfile(info, io.BytesIO(data))
    return whole.getvalue()


def applets(busybox: Path) -> list[str]:
    """Returns the applets of a busybox, without `busybox` itself: a link of that name would replace the program."""
    try:
        done = run([os.fspath(busybox), "--list"], env={}, deadline=_LIST_SECONDS)
    except OSError as error:
        raise BadImage(str(busybox), f"`--list` failed: {error}") from error
    if done.code:
        raise BadImage(str(busybox), f"`--list` ended with exit code {done.code}")
    names = {name for name in done.stdout.decode("ascii", "replace").split() if _APPLET.fullmatch(name)}
    return sorted(names - {"busybox", ".", ".."})


def _members(program: bytes, names: list[str]) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for name, mode in _DIRECTORIES.items():
        yield _member(name, tarfile.DIRTYPE, mode), b""
    for name, target in {**_LINKS, **{f"bin/{applet}": "busybox" for applet in names}}.items():
        link = _member(name, tarfile.SYMTYPE, 0o777)
        link.linkname = target
        yield link, b""
    for name, text in _FILES.items():
        yield _file(name, 0o644, text.encode())
    yield _file("bin/busybox", 0o755, program)


def _file(name: str, mode: int, data: bytes) -> tuple[tarfile.TarInfo, bytes]:
    info = _member(name, tarfile.REGTYPE, mode)
    info.size = len(data)
    return info, data


def _member(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, mode
    return info


def _is_static(program: bytes) -> bool:
    """Whether an ELF program asks for no interpreter, and so for no library."""
    try:
        wide, little = program[4] == 2, program[5] == 1
        order = "<" if little else ">"
        if program[:4] != b"\x7fELF":
            return False
        (start,) = struct.unpack_from(order + ("Q" if wide else "I"), program, 32 if wide else 28)
        size, count = struct.unpack_from(order + "HH", program, 54 if wide else 42)
        kinds = (struct.unpack_from(order + "I", program, start + number * size)[0] for number in range(count))
        asks_for_one = _INTERPRETER in kinds
    except (struct.error, IndexError):
        return False
    return not asks_for_one
