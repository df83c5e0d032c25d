"""`podwire image`: images of this machine, imported from archives or built here."""

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwire.cli.main import UserError
from podwire.linux.fs.trust import check_directory
from podwire.runtime.images import Image, ImageError, Images
from podwire.runtime.images.build import BUSYBOX, ROOT_REFERENCE, archive_root, build_root

STORE = Path("var/lib/podwire/images")


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="List images")
    listing.add_argument("image", nargs="?", default="", help="only this name, repository or id")
    taking = verbs.add_parser("import", help="Import an OCI image layout or the output of `docker save`")
    taking.add_argument("archive", type=Path, help="directory or tar file, plain or gzip")
    taking.add_argument("--name", default="", help="name of the image, instead of the one in the archive")
    removing = verbs.add_parser("remove", help="Remove images with all their names")
    removing.add_argument("image", nargs="+", help="name or id")
    building = verbs.add_parser("build-root", help="Build an image from this host's static busybox")
    building.add_argument("--name", default=ROOT_REFERENCE)
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
        "--archive", type=Path, metavar="FILE", help="write an archive for any runtime, instead of storing the image"
    )
    for verb in (listing, taking, removing, building):
        verb.add_argument(
            "--prefix",
            type=Path,
            default=Path("/"),
            metavar="DIR",
            help=f"directory of the cluster; images are in DIR/{STORE} (default: /)",
        )
        verb.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.verb == "build-root" and arguments.archive is not None:
            archive_root(arguments.archive, arguments.name, arguments.busybox, arguments.words)
            return 0
        images = Images(Path(check_directory(arguments.prefix / STORE)))
        try:
            shown = _VERBS[arguments.verb](images, arguments)
        finally:
            images.close()
    except (ImageError, OSError) as error:
        raise UserError(str(error)) from error
    if arguments.output == "json":
        print(json.dumps([_as_json(image) for image in shown], indent=2))
    else:
        _print_table(shown)
    return 0


def _list(images: Images, arguments: argparse.Namespace) -> Sequence[Image]:
    return images.list(arguments.image)


def _import(images: Images, arguments: argparse.Namespace) -> Sequence[Image]:
    return images.import_archive(arguments.archive, name=arguments.name)


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


def _build_root(images: Images, arguments: argparse.Namespace) -> Sequence[Image]:
    return [build_root(images, arguments.name, arguments.busybox, arguments.words)]


_VERBS = {"list": _list, "import": _import, "remove": _remove, "build-root": _build_root}


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
