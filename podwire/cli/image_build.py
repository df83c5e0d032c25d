"""`podwire image build`: an image from a Containerfile."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from podwire.cli.main import UserError
from podwire.linux.fs.regular_files import read_head
from podwire.protocols.containerfile.ignore import BadPattern
from podwire.protocols.containerfile.syntax import LONGEST
from podwire.protocols.containerfile.words import Platform
from podwire.runtime.images import Image, Images

FILES = ("Containerfile", "Dockerfile")
NETWORKS = ("host", "none")
EPOCH = "SOURCE_DATE_EPOCH"
_PLATFORM = re.compile(r"linux/([a-z0-9]+)(?:/(v[0-9]+))?")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="context: the files that COPY sees")
    parser.add_argument(
        "-f", "--file", type=Path, metavar="FILE",
        help="Containerfile or Dockerfile; - is standard input (default: DIR/Containerfile, else DIR/Dockerfile)",
    )  # fmt: skip
    parser.add_argument(
        "-t", "--name", action="append", default=[], metavar="NAME", help="name of the image; repeatable"
    )
    parser.add_argument(
        "--build-arg", type=_argument, action="append", default=[], metavar="NAME=VALUE",
        help="value of an ARG; without =VALUE that of the environment; repeatable",
    )  # fmt: skip
    parser.add_argument("--network", choices=NETWORKS, default="host", help="network of RUN (default: host)")
    parser.add_argument("--no-cache", action="store_true", help="do all steps, also those that are unchanged")
    parser.add_argument(
        "--platform", type=_platform, metavar="linux/ARCH",
        help="platform of the image; of another one than this machine's only an archive is written, without RUN",
    )  # fmt: skip
    parser.add_argument("-o", "--archive", type=Path, metavar="FILE", help="write an OCI archive, too")


def _argument(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value if equals else os.environ.get(name, "")


def _platform(text: str) -> Platform:
    match = _PLATFORM.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a platform, such as linux/amd64 or linux/arm64/v8")
    return Platform("linux", match[1], match[2] or "")


def build(images: Images, arguments: argparse.Namespace) -> Sequence[Image]:
    """Builds one image; progress and the output of RUN go to standard error."""
    # The parts of a runtime take a second to load, which the other verbs save.
    from podwire.cluster.image_build import make_builder  # noqa: PLC0415 - slow to load
    from podwire.runtime.builder import BuildRequest, Context  # noqa: PLC0415 - slow to load
    from podwire.runtime.builder.context import read_ignore_file  # noqa: PLC0415 - slow to load

    if not arguments.name and arguments.archive is None:
        raise UserError("name the image with -t NAME, or write an archive with -o FILE")
    file, text = _containerfile(arguments)
    try:
        ignore = read_ignore_file(file, arguments.directory)
    except BadPattern as error:
        raise UserError(str(error)) from error
    context = Context(arguments.directory, ignore, images.limits)
    try:
        request = BuildRequest(
            text=text,
            file=str(file),
            context=context,
            names=tuple(arguments.name),
            arguments=dict(arguments.build_arg),
            platform=arguments.platform,
            archive=arguments.archive,
            network=arguments.network,
            cached=not arguments.no_cache,
            time=_epoch(),
        )
        image = make_builder(images, lambda line: print(line, file=sys.stderr, flush=True)).build(request)
    finally:
        context.close()
    return [image] if image is not None else []


def _containerfile(arguments: argparse.Namespace) -> tuple[Path, str]:
    """Returns the name and the text of the Containerfile."""
    file = arguments.file
    if file == Path("-"):
        data = sys.stdin.buffer.read(LONGEST + 1)
    else:
        if file is None:
            candidates = [arguments.directory / name for name in FILES]
            file = next((path for path in candidates if path.exists()), None)
            if file is None:
                raise UserError(f"{arguments.directory}: has neither {' nor '.join(FILES)}; name one with -f FILE")
        data = read_head(file, LONGEST + 1, follow=True)
    try:
        return file, data.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not text") from error


def _epoch() -> int:
    """The time of all files and of the image: fixed, so that the same input makes the same image."""
    text = os.environ.get(EPOCH, "") or "0"
    if not text.isdecimal() or int(text) >= 1 << 33:
        raise UserError(f"{EPOCH}: {text[:40]!r} is not a number of seconds since 1970")
    return int(text)
