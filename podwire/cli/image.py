"""`podwire image`: images of this machine, pulled from registries, imported from archives or built here."""

import argparse
import asyncio
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podwire.cli import image_build
from podwire.cli.main import UserError
from podwire.cli.options import add_prefix
from podwire.cli.terminal import ProgressLine
from podwire.cluster.image_load import ENGINES, Engines
from podwire.cluster.registries import DIRECTORY, hosts_finder, registry_client
from podwire.linux.fs.trust import check_directory
from podwire.protocols.distribution import docker_config
from podwire.runtime.images import Image, ImageError, Images, references
from podwire.runtime.images.build import BUSYBOX, ROOT_REFERENCE, archive_root, build_root
from podwire.runtime.images.pull import Puller, Transfer
from podwire.runtime.images.registry import ANONYMOUS

STORE = Path("var/lib/podwire/images")
STANDARD_INPUT = Path("-")
COPY_BYTES = 1 << 20
DOCKER_CONFIG = Path("~/.docker/config.json")


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="List images")
    listing.add_argument("image", nargs="?", default="", help="only this name, repository or id")
    taking = verbs.add_parser("import", help="Import an OCI image layout or the output of `docker save`")
    taking.add_argument("archive", type=Path, help="directory or tar file, plain, gzip or zstd; - is standard input")
    taking.add_argument("--name", default="", help="name of the image, instead of the one in the archive")
    pulling = verbs.add_parser("pull", help="Pull images from their registries")
    pulling.add_argument("image", nargs="+", help="name, as in a pod: REGISTRY/PATH:TAG or REGISTRY/PATH@DIGEST")
    pulling.add_argument(
        "--docker-config", type=Path, metavar="FILE",
        help="logins of registries, as `docker login` writes them (default: ~/.docker/config.json, if there is one)",
    )  # fmt: skip
    removing = verbs.add_parser("remove", help="Remove images with all their names")
    removing.add_argument("image", nargs="+", help="name or id")
    building = verbs.add_parser("build-root", help="Build an image from this host's static busybox")
    building.add_argument("--name", default="", help=f"name of the image (default: {ROOT_REFERENCE})")
    building.add_argument("--busybox", type=Path, default=BUSYBOX, metavar="FILE")
    building.add_argument(
        "--command",
        dest="words",
        type=shlex.split,
        default=["sh"],
        metavar="WORDS",
        help="command of the image (default: sh)",
    )
    building.add_argument(
        "--add", type=_added, action="append", default=[], metavar="FILE:PATH",
        help="a file of this host, and its path in the image; repeatable",
    )  # fmt: skip
    building.add_argument(
        "--network", action="store_true",
        help="build podwire.local/network instead: with ip, tcpdump, curl, dig and ping of Debian's packages",
    )  # fmt: skip
    building.add_argument(
        "--podwire", action="store_true",
        help="build podwire.local/podwire instead: podwire itself with this host's Python, for `podwire manifests`",
    )  # fmt: skip
    building.add_argument(
        "--packages", type=Path, metavar="DIR", help="with --network: take *.deb from here, and download nothing"
    )
    building.add_argument(
        "--archive", type=Path, metavar="FILE", help="write an archive for any runtime, instead of storing the image"
    )
    loading = verbs.add_parser("load", help="Import images from a local Docker, podman or containerd")
    loading.add_argument("image", nargs="+", help="name, as the other engine has it")
    loading.add_argument(
        "--from", dest="engines", action="append", choices=ENGINES, default=None,
        help="ask only this engine; repeatable (default: all that are installed)",
    )  # fmt: skip
    from_file = verbs.add_parser("build", help="Build an image from a Containerfile or Dockerfile")
    image_build.configure(from_file)
    for verb in (listing, taking, pulling, removing, building, loading, from_file):
        add_prefix(verb, f"directory of the cluster; images are in DIR/{STORE}", flag="--cluster")
        short = () if verb is from_file else ("-o",)  # there it is the archive, as for other builders
        verb.add_argument(*short, "--output", choices=("text", "json"), default="text")


def _added(text: str) -> tuple[Path, str]:
    """Parses FILE:PATH."""
    file, colon, path = text.rpartition(":")
    if not colon or not file or not path.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} is not FILE:PATH, such as index.html:/www/index.html")
    return Path(file), path


def _contents(arguments: argparse.Namespace) -> dict[str, bytes]:
    return {path: file.read_bytes() for file, path in arguments.add}


def run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.verb == "build-root" and arguments.archive is not None:
            if arguments.network:
                raise UserError("--network and --archive do not go together")
            if arguments.podwire:
                return _archive_podwire(arguments)
            archive_root(
                arguments.archive,
                arguments.name or ROOT_REFERENCE,
                arguments.busybox,
                arguments.words,
                _contents(arguments),
            )
            return 0
        images = Images(Path(check_directory(arguments.prefix / STORE)))
        try:
            shown = _VERBS[arguments.verb](images, arguments)
        finally:
            images.close()
    except (ImageError, docker_config.BadConfig, OSError) as error:
        raise UserError(str(error)) from error
    if arguments.output == "json":
        print(json.dumps([_as_json(image) for image in shown], indent=2))
    else:
        _print_table(shown)
    return 0


def _list(images: Images, arguments: argparse.Namespace) -> Sequence[Image]:
    return images.list(arguments.image)


def _import(images: Images, arguments: argparse.Namespace) -> Sequence[Image]:
    if arguments.archive != STANDARD_INPUT:
        return images.import_archive(arguments.archive, name=arguments.name, must_have_name=True)
    if sys.stdin.isatty():
        raise UserError("standard input is a terminal; pipe an archive into it, such as `docker save IMAGE`")
    with images.stage() as stage:
        archive = stage / "standard input"
        with archive.open("xb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, COPY_BYTES)
        return images.import_archive(archive, name=arguments.name, must_have_name=True)


def _load(images: Images, arguments: argparse.Namespace) -> Sequence[Image]:
    """Loads one image after the other; the archive of each is a temporary file of the store."""
    loaded: list[Image] = []
    engines = Engines(arguments.engines or ENGINES)
    for name in arguments.image:
        with images.stage() as stage:
            engine = engines.export(name, stage / "archive")
            print(f"{name}: found in {engine}", file=sys.stderr, flush=True)
            loaded += images.import_archive(stage / "archive", name=str(references.parse(name)))
    return loaded


def _pull(images: Images, arguments: argparse.Namespace) -> Sequence[Image]:
    """Pulls one image after the other, with a line of progress on standard error."""
    config = arguments.docker_config or DOCKER_CONFIG.expanduser()
    logins: Mapping[str, Mapping[str, Any]] = {}
    if arguments.docker_config or config.is_file():
        try:
            logins = docker_config.parse_config(config.read_bytes())
        except docker_config.BadConfig as error:
            raise UserError(f"{config}: {error}") from error

    async def pull_all() -> list[Image]:
        async with registry_client() as http:
            puller = Puller(images, http, hosts_finder(arguments.prefix / DIRECTORY))
            try:
                return [await pull_one(puller, name) for name in arguments.image]
            finally:
                puller.close()

    async def pull_one(puller: Puller, name: str) -> Image:
        fitting = docker_config.matching(references.parse(name).repository, logins.items())
        line = ProgressLine()
        try:
            login = fitting[0] if fitting else ANONYMOUS
            return await puller.pull(name, login, lambda transfer: line.show(_transferred(name, transfer)))
        finally:
            line.clear()

    return asyncio.run(pull_all())


def _transferred(name: str, transfer: Transfer) -> str:
    layers = f"{transfer.layers_done} of {transfer.layers} layers"
    return f"{name}: {layers}, {transfer.bytes_done / 1e6:.1f} of {transfer.bytes / 1e6:.1f} MB"


def _remove(images: Images, arguments: argparse.Namespace) -> Sequence[Image]:
    """Returns the removed images; removes none if one of them does not exist."""
    found = {}
    for name in arguments.image:
        image = images.status(name)
        if image is None:
            raise UserError(f"no image {name!r}")
        found[image.id] = image
    for id_ in found:
        images.remove(id_)
    return list(found.values())


def _archive_podwire(arguments: argparse.Namespace) -> int:
    """Builds the image of podwire in a store of its own, which ends with the command; only the archive stays."""
    with tempfile.TemporaryDirectory(dir=arguments.archive.absolute().parent, prefix=".podwire-image-") as directory:
        images = Images(Path(directory))
        try:
            _build_podwire(images, arguments)
        finally:
            images.close()
    return 0


def _build_podwire(images: Images, arguments: argparse.Namespace) -> Image:
    from podwire.cluster import podwire_image  # noqa: PLC0415 - slow to load

    return podwire_image.build_podwire_image(
        images, _report, reference=arguments.name or podwire_image.PODWIRE_REFERENCE, archive=arguments.archive
    )


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _build_root(images: Images, arguments: argparse.Namespace) -> Sequence[Image]:
    if arguments.packages is not None and not arguments.network:
        raise UserError("--packages is for --network")
    if arguments.network and arguments.podwire:
        raise UserError("--network and --podwire do not go together")
    if arguments.podwire:
        return [_build_podwire(images, arguments)]
    if arguments.network:
        from podwire.cluster import network_image  # noqa: PLC0415 - slow to load

        name = arguments.name or network_image.NETWORK_REFERENCE
        return [network_image.build_network_image(images, _report, reference=name, packages=arguments.packages)]
    return [
        build_root(images, arguments.name or ROOT_REFERENCE, arguments.busybox, arguments.words, _contents(arguments))
    ]


_VERBS = {
    "list": _list,
    "import": _import,
    "pull": _pull,
    "remove": _remove,
    "build-root": _build_root,
    "build": image_build.build,
    "load": _load,
}


def _as_json(image: Image) -> dict[str, Any]:
    return {
        "id": image.id,
        "names": image.names,
        "digests": image.digests,
        "size": image.size,
        "user": image.config.user,
        "entrypoint": image.config.entrypoint,
        "cmd": image.config.cmd,
    }


def _print_table(images: Sequence[Image]) -> None:
    rows = [
        (name, image.id[7:20], f"{image.size / 1e6:.1f}MB") for image in images for name in image.names or ("<none>",)
    ]
    widths = [max(map(len, column)) for column in zip(("IMAGE", "ID", "SIZE"), *rows, strict=True)]
    for row in (("IMAGE", "ID", "SIZE"), *rows):
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
