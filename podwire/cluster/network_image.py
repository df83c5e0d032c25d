"""The image for people who work on networks: ip, tcpdump, curl, dig and ping, from Debian's packages.

The packages are downloaded by apt, with what they depend on, or taken from a directory; they are unpacked and copied
over the image of busybox, whose shell and small programs stay. Nothing is installed on this machine, and no script of a
package is run.
"""

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster.image_build import make_builder
from podwire.linux.errors import LinuxError
from podwire.linux.proc import processes
from podwire.protocols.containerfile import IgnorePatterns
from podwire.runtime.builder import BuildFailed, BuildRequest, Context
from podwire.runtime.images import Image, Images
from podwire.runtime.images.build import ROOT_REFERENCE, build_root

NETWORK_REFERENCE = "podwire.local/network:latest"
PACKAGES = ("iproute2", "tcpdump", "curl", "bind9-dnsutils", "iputils-ping", "ca-certificates", "bash")
PROGRAMS = ("ip", "tcpdump", "curl", "dig", "ping", "bash")
NOT_NEEDED = frozenset(
    {"adduser", "base-files", "cdebconf", "debconf", "debianutils", "dpkg", "libcap2-bin", "openssl", "perl-base"}
)
"""Packages that only scripts of other packages need."""
LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian")
LEFT_OUT_TOO = ("usr/share/bash-completion", "usr/share/bug", "usr/share/gcc", "etc/init.d", "etc/cron.daily")
SET_UP = Path(sys.prefix) / "debian/network"
"""Packages that set-up has downloaded already."""
MERGED = ("sbin", "usr/bin", "usr/sbin")
"""Directories that are links to `bin` in busybox' image."""
BUNDLE = "etc/ssl/certs/ca-certificates.crt"
_DEPENDS = re.compile(r"\s+\|?(?:Pre)?Depends: ([a-z0-9][a-z0-9+.-]*)(?::any)?")
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AptLimits:
    """Seconds."""

    ask: float = 60.0
    download: float = 600.0
    unpack: float = 60.0


def build_network_image(
    images: Images, report: Report, *, reference: str = NETWORK_REFERENCE, packages: Path | None = None
) -> Image:
    """Builds the image from the `*.deb` of a directory, or from downloaded ones. Raises BuildFailed, ImageError."""
    limits = AptLimits()
    if images.status(ROOT_REFERENCE) is None:
        build_root(images)
    if packages is None and any(SET_UP.glob("*.deb")):
        packages = SET_UP
    with images.stage() as directory:
        if packages is None:
            packages = directory / "packages"
            packages.mkdir()
            download_packages(packages, report, limits)
        files = sorted(packages.glob("*.deb"))
        if not files:
            raise BuildFailed(f"{packages}: has no packages (*.deb)")
        context = directory / "context"
        _unpack(files, context / "root", limits)
        return _build(images, context, reference, report)


def download_packages(directory: Path, report: Report, limits: AptLimits | None = None) -> None:
    """Downloads the packages and what they depend on. Raises BuildFailed."""
    limits = limits or AptLimits()
    wanted, asked = set(PACKAGES), set[str]()
    while missing := sorted(wanted - asked):
        asked |= set(missing)
        depends = _run(limits.ask, "apt-cache", "depends", "-i", *missing)
        wanted |= {match[1] for line in depends.splitlines() if (match := _DEPENDS.fullmatch(line))} - NOT_NEEDED
    report(f"downloading {len(wanted)} Debian packages")
    options = ("-o", "APT::Sandbox::User=root", "-qq")
    _run(
        limits.download,
        "sh",
        "-c",
        'cd "$0" && exec apt-get "$@"',
        str(directory),
        *options,
        "download",
        *sorted(wanted),
    )


def _unpack(files: list[Path], root: Path, limits: AptLimits) -> None:
    (root / "bin").mkdir(parents=True)
    for file in files:
        _run(limits.unpack, "dpkg-deb", "--extract", str(file), str(root))
    for directory in (root / path for path in MERGED if (root / path).is_dir()):
        for program in directory.iterdir():
            if not (root / "bin" / program.name).exists():  # else a link to it, such as sbin/ip
                program.replace(root / "bin" / program.name)
        shutil.rmtree(directory)
    for path in (*LEFT_OUT, *LEFT_OUT_TOO):
        shutil.rmtree(root / path, ignore_errors=True)
    (root / "bin/sh").unlink(missing_ok=True)
    (root / "bin/sh").symlink_to("bash")  # busybox' own prefers its applets, such as ip and ping, to programs
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    if certificates:  # as the package's script would write them
        (root / BUNDLE).parent.mkdir(parents=True, exist_ok=True)
        (root / BUNDLE).write_bytes(b"".join(certificate.read_bytes() for certificate in certificates))
    if missing := [name for name in PROGRAMS if not (root / "bin" / name).exists()]:
        raise BuildFailed(f"the packages do not have {', '.join(missing)}; wanted are {', '.join(PACKAGES)}")


def _build(images: Images, context: Path, reference: str, report: Report) -> Image:
    text = f'FROM {ROOT_REFERENCE}\nCOPY root/ /\nCMD ["bash"]\n'
    opened = Context(context, IgnorePatterns(), images.limits)
    try:
        request = BuildRequest(text=text, file="network image", context=opened, names=(reference,))
        image = make_builder(images, report).build(request)
    finally:
        opened.close()
    if image is None:
        raise BuildFailed(f"{reference} was not built")
    return image


def _run(seconds: float, program: str, *words: str) -> str:
    try:
        done = processes.run([program, *words], env=_ENVIRONMENT, deadline=seconds, kill_group=True)
    except LinuxError as error:
        help_ = "the image is made of Debian packages: use --packages DIR with downloaded ones, or Debian with apt"
        raise BuildFailed(f"{error}; {help_}") from error
    if done.code:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.code}"]
        raise BuildFailed(f"{program} failed: {said[-1][:300]}; `apt-get update`, or --packages DIR, may help")
    return done.stdout.decode("utf-8", "replace")
