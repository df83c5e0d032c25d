"""`podwire image build`, as a user runs it: commands run in real containers, archives are judged by skopeo."""

import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from podwire.cluster.runtime import must_cover_unified
from podwire.linux.fs.mounts import mounted
from podwire.protocols.containerfile import Platform
from podwire.runtime.builder import Builder, BuildFailed, BuildRequest, BuildSandbox, Context
from podwire.runtime.builder.context import read_ignore_file
from podwire.runtime.images import Images
from podwire.runtime.images.build import BUSYBOX
from podwire.shim import find_shim
from tests.eventually import eventually

PODWIRE = str(Path(sys.executable).with_name("podwire"))
BASE = "podwire.local/busybox"
NAME = "example.test/app:1"
OTHER_MACHINE = "arm64" if platform.machine() == "x86_64" else "amd64"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts layers"),
    pytest.mark.skipif(not BUSYBOX.exists(), reason="no busybox (Debian: busybox-static)"),
]


class Build:
    """A context, and a store that has an image to build from."""

    def __init__(self, directory: Path, prefix: Path) -> None:
        self.context = directory / "context"
        self.context.mkdir()
        self.prefix = prefix
        self.images = Images(prefix / "var/lib/podwire/images")
        self.built = None

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.context / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def command(self, text: str, *arguments: object) -> list[str]:
        (self.context / "Containerfile").write_text(text)
        return [PODWIRE, "image", "build", str(self.context), "--prefix", str(self.prefix), *map(str, arguments)]

    def __call__(self, text: str, *, fails: bool = False, **options: Any) -> str:
        """Builds in this process. Returns the lines of progress, and the error."""
        file = self.context / "Containerfile"
        file.write_text(text)
        lines: list[str] = []
        context = Context(self.context, read_ignore_file(file, self.context))
        runtime = shutil.which("crun")

        def sandbox() -> BuildSandbox:
            return BuildSandbox(shim=find_shim(), runtime=runtime, cover_unified=must_cover_unified(runtime))

        try:
            request = BuildRequest(text=text, file=str(file), context=context, names=(NAME,), **options)
            self.built = Builder(self.images, sandbox, lines.append).build(request)
        except BuildFailed as error:
            if not fails:
                raise
            lines.append(str(error))
        else:
            assert not fails
        finally:
            context.close()
        return "\n".join(lines)

    @property
    def root(self) -> list[Path]:
        image = self.images.status(NAME)
        assert image is not None
        return list(self.images.rootfs_layers(image))

    def read(self, path: str) -> str:
        return next(layer / path for layer in self.root if (layer / path).exists()).read_text()


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    subprocess.run([PODWIRE, "image", "build-root", "--prefix", prefix], check=True, capture_output=True)
    return prefix


@pytest.fixture
def build(tmp_path, prefix):
    build = Build(tmp_path, prefix)
    yield build
    build.images.remove(NAME)
    Images(prefix / "var/lib/podwire/images")  # opening sweeps what killed builds left
    assert not any(mount.target.startswith(str(prefix)) for mount in mounted())
    assert list((prefix / "var/lib/podwire/images/staging").iterdir()) == []


FILE = f"""
FROM {BASE}
ARG WHO=world
ENV GREETING="hello $WHO"
WORKDIR /srv/app
COPY --chown=www-data --chmod=640 data/ data/
RUN echo "$GREETING" > greeting && rm /bin/wget && rm -rf /var/www && mkdir /var/www && touch /var/www/new
USER nobody
CMD ["cat", "greeting"]
"""


def test_files_are_copied_commands_are_run_and_settings_are_set(build):
    build.write(data__a="one\n", data__sub__b="two\n", other="not copied\n")
    words = build.command(FILE, "-t", NAME, "--build-arg", "WHO=you")
    output = subprocess.run(words, check=True, capture_output=True, text=True).stderr
    assert "step 5 of 7: RUN echo" in output
    image = build.images.status(NAME)
    assert (image.config.user, image.config.cmd, image.config.workdir) == ("nobody", ("cat", "greeting"), "/srv/app")
    assert "GREETING=hello you" in image.config.env
    ran, copied, directory, _base = build.root
    assert (ran / "srv/app/greeting").read_text() == "hello you\n"
    status = (copied / "srv/app/data/sub/b").stat()
    assert (status.st_mode & 0o777, status.st_uid, status.st_gid, status.st_mtime) == (0o640, 33, 33, 0)
    assert [path.name for path in (directory / "srv/app").iterdir()] == []
    assert os.lstat(ran / "bin/wget").st_rdev == 0  # a whiteout
    assert os.getxattr(ran / "var/www", "trusted.overlay.opaque") == b"y"
    assert sorted(path.name for path in ran.iterdir()) == ["bin", "srv", "var"]  # no mount points


def test_the_same_input_makes_the_same_image_and_unchanged_steps_are_not_repeated(build, tmp_path):
    build.write(data__a="one\n")
    first = build(FILE, archive=tmp_path / "first.tar")
    image = build.built
    again = build(FILE, archive=tmp_path / "again.tar")
    assert (first.count("unchanged"), again.count("unchanged")) == (0, 3)
    assert build.built == image
    anew = build(FILE, cached=False, archive=tmp_path / "anew.tar")
    assert anew.count("unchanged") == 0
    assert build.built == image
    build(FILE.replace("USER", "LABEL x=y\nUSER"), archive=tmp_path / "labelled.tar")
    assert build.built.layers == image.layers
    archives = {(tmp_path / f"{name}.tar").read_bytes() for name in ("first", "again", "anew")}
    assert len(archives) == 1
    build.write(data__a="two\n")
    assert build(FILE).count("unchanged") == 1  # WORKDIR; the copied file is another
    assert build.built.layers != image.layers
    build(FILE, cached=False, time=1_700_000_000)
    assert (build.root[0] / "srv/app/greeting").stat().st_mtime == 1_700_000_000


def test_a_failing_command_names_its_line_and_the_steps_before_it_are_kept(build):
    build.write(data__a="kept\n")
    text = f"FROM {BASE}\nCOPY data/ /kept/\nRUN echo before && exit 3\n"
    output = build(text, fails=True)
    assert output.endswith(f"{build.context}/Containerfile:3: RUN: ended with exit code 3")
    assert "  before\n" in output
    assert build.images.status(NAME) is None
    assert build(text.replace("exit 3", "true")).count("unchanged") == 1
    for image in build.images.list():
        if not image.names:
            build.images.remove(image.id)


def test_commands_have_the_network_of_the_host_or_none(build):
    text = f"FROM {BASE}\nRUN ls /sys/class/net > /links; cat /etc/resolv.conf > /resolver; hostname > /name\n"
    build(text, network="none")
    assert build.read("links") == "lo\n"
    build(text)
    assert build.read("links").split() == sorted(path.name for path in Path("/sys/class/net").iterdir())
    assert build.read("resolver") == Path("/etc/resolv.conf").read_text()
    assert build.read("name") == "build\n"


def test_a_command_has_no_more_rights_than_a_container(build):
    build(f"FROM {BASE}\nRUN grep CapEff /proc/self/status > /rights; ! mount -t tmpfs none /mnt; ! mknod /x b 8 0\n")
    mine = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff"))
    assert int(build.read("rights").split()[1], 16) < int(mine.split()[1], 16)


def test_nothing_outside_of_the_context_is_copied(build, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (build.context / "out").symlink_to("../secret")
    (build.context / "absolute").symlink_to("/etc/passwd")
    for source, words in (
        ("../secret", "leads out of the context"),
        ("out", "No such file"),
        ("absolute", "No such file"),
        ("nothing", "No such file"),
        ("*.nothing", "no such file in the context"),
    ):
        assert f"Containerfile:2: COPY: {source}: " in build(f"FROM {BASE}\nCOPY {source} /x\n", fails=True)
        assert words in build(f"FROM {BASE}\nCOPY {source} /x\n", fails=True)
    build(f"FROM {BASE}\nCOPY . /all/\n")
    assert (build.root[0] / "all/absolute").readlink() == Path("/etc/passwd")  # links below are copied as links


def test_links_of_the_image_do_not_lead_out_of_it(build, tmp_path):
    target = tmp_path / "host"
    target.mkdir()
    build.write(file="text")
    links = f"RUN mkdir -p {target} && ln -s {target} /link && ln -s /etc /settings && ln -s nothing /dangling"
    build(f"FROM {BASE}\n{links}\nCOPY file /settings/\nCOPY file /link/x/\n")
    assert list(target.iterdir()) == []
    assert (build.root[0] / str(target).lstrip("/") / "x/file").read_text() == "text"
    assert build.read("etc/file") == "text"
    failed = build(f"FROM {BASE}\n{links}\nCOPY file /dangling/x", fails=True)
    assert "/dangling: is a symbolic link to nothing" in failed


def test_what_the_ignore_file_names_is_not_in_the_context(build):
    build.write(a="", b="", sub__c="", sub__keep="")
    (build.context / ".dockerignore").write_text("b\nsub\n!sub/keep\nContainerfile\n")
    build(f"FROM {BASE}\nCOPY . /all/\n")
    files = sorted(str(path.relative_to(build.root[0])) for path in build.root[0].rglob("*") if path.is_file())
    assert files == ["all/.dockerignore", "all/a", "all/sub/keep"]
    assert "left out by the ignore file" in build(f"FROM {BASE}\nCOPY b /\n", fails=True)
    (build.context / "Containerfile.dockerignore").write_text("a\n")
    assert "left out by the ignore file" in build(f"FROM {BASE}\nCOPY a /\n", fails=True)


@pytest.mark.parametrize(
    ("lines", "copied"),
    [
        ("COPY a /to", {"to": "A"}),
        ("COPY a /to/", {"to/a": "A"}),
        ("COPY a /tmp", {"tmp/a": "A"}),
        ("COPY a b /to/", {"to/a": "A", "to/b": "B"}),
        ("COPY [ab] /to/", {"to/a": "A", "to/b": "B"}),
        ("COPY dir /to", {"to/x": "X"}),
        ("COPY dir/* /to/", {"to/x": "X"}),
        ("COPY a /bin/sh", {"bin/sh": "A"}),
        ("COPY a /to\nCOPY b /to", {"to": "B"}),
        ("WORKDIR /w\nCOPY a .", {"w/a": "A"}),
    ],
)
def test_copy_places_files_as_other_builders_do(build, lines, copied):
    build.write(a="A", b="B", dir__x="X")
    build(f"FROM {BASE}\n{lines}\n")
    assert {str(p.relative_to(build.root[0])): p.read_text() for p in build.root[0].rglob("*") if p.is_file()} == copied


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FROM example.test/nothing", ":1: FROM: image 'example.test/nothing' is missing here; pull or import it"),
        (f"FROM {BASE}\nADD packed.tar /x", ":2: ADD: packed.tar: unpacking is not supported"),
        (f"FROM {BASE}\nCOPY --chown=stranger packed.tar /x", ":2: COPY: --chown: the image has no user 'stranger'"),
        (f"FROM {BASE}\nCOPY packed.tar packed.* /x", ":2: COPY: with several sources"),
        (f"FROM {BASE}\nCOPY packed.* /x", ""),
        (f"FROM {BASE}\nCOPY packed.tar /etc/passwd/x", ":2: COPY: /etc/passwd: Not a directory"),
        (f"FROM {BASE}\nUSER stranger\nRUN id", ":3: RUN: "),
        (f'FROM {BASE}\nRUN ["/no/such"]', ":2: RUN: ended with exit code"),
        (f"FROM {BASE}\n" + "RUN true\n" * 130, ":1: the image would have 131 layers; at most 127 are possible"),
    ],
)
def test_errors_name_the_file_the_line_and_the_reason(build, text, words):
    with tarfile.open(build.context / "packed.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("x"), io.BytesIO())
    output = build(text, fails=bool(words))
    assert f"Containerfile{words}" in output or not words


def test_errors_of_the_command_line(build, tmp_path):
    for words, expected in (
        ((tmp_path / "nowhere", "-t", NAME), "nowhere: has neither Containerfile nor Dockerfile"),
        ((build.context,), "name the image with -t NAME, or write an archive with -o FILE"),
        ((build.context, "-t", "NOT A NAME"), "'NOT A NAME'"),
        ((build.context, "-t", f"x.test/a@sha256:{'0' * 64}"), "the name of an image has a tag"),
        ((build.context, "-t", NAME, "--platform", f"linux/{OTHER_MACHINE}"), "write an archive of it"),
    ):
        build.write(Containerfile=f"FROM {BASE}\n")
        command = [PODWIRE, "image", "build", *map(str, words), "--prefix", build.prefix]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert expected in done.stderr


def test_an_image_from_scratch_for_another_machine_is_an_archive(build, tmp_path):
    build.write(program="#!")
    archive = tmp_path / "other.tar"
    arguments = {"platform": Platform("linux", OTHER_MACHINE), "archive": archive}
    build('FROM scratch\nARG TARGETARCH\nENV A=$TARGETARCH\nCOPY program /\nENTRYPOINT ["/program"]\n', **arguments)
    words = ["skopeo", "inspect", "--config", "--override-arch", OTHER_MACHINE, f"oci-archive:{archive}"]
    config = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    assert (config["architecture"], config["config"]["Entrypoint"]) == (OTHER_MACHINE, ["/program"])
    assert f"A={OTHER_MACHINE}" in config["config"]["Env"]
    assert build.images.status(NAME) is None
    assert "RUN: commands for" in build("FROM scratch\nRUN x\n", **arguments, fails=True)
    assert "only scratch is there" in build(f"FROM {BASE}\n", **arguments, fails=True)


def test_the_archive_of_an_image_can_be_copied_by_other_tools_and_imported(build, tmp_path):
    build.write(data__a="one\n")
    build(FILE, archive=tmp_path / "whole.tar")
    copy = ["skopeo", "--insecure-policy", "copy", f"oci-archive:{tmp_path / 'whole.tar'}", f"dir:{tmp_path / 'dir'}"]
    subprocess.run(copy, check=True, capture_output=True)
    other = Images(tmp_path / "other")
    [image] = other.import_archive(tmp_path / "whole.tar", must_have_name=True)
    assert image.names == (NAME,)
    assert (other.rootfs_layers(image)[0] / "srv/app/greeting").read_text() == "hello world\n"


def test_a_killed_build_leaves_nothing_that_stays_and_the_next_one_works(build, tmp_path):
    text = f"FROM {BASE}\nRUN echo started; sleep 4711\n"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    words = build.command(text, "-t", NAME)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as child:
        for line in child.stderr:
            if line == "  started\n":
                break
        child.send_signal(signal.SIGKILL)

    def is_gone() -> bool:
        return subprocess.run(["pgrep", "-f", "^sleep 4711"], capture_output=True, check=False).returncode == 1

    eventually(is_gone, 10)
    assert list(temporary.iterdir()) == []
    build(f"FROM {BASE}\nRUN true\n")
    assert not list(Path("/sys/fs/cgroup").glob("*/podwire-build/*"))


def test_an_interrupted_build_ends_its_command(build):
    text = f"FROM {BASE}\nRUN echo started; sleep 4712\n"
    command = ["env", "--default-signal=INT", *build.command(text, "-t", NAME)]  # shells ignore it in the background
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        for line in child.stderr:
            if line == "  started\n":
                break
        child.send_signal(signal.SIGINT)
    assert child.returncode != 0
    assert subprocess.run(["pgrep", "-f", "^sleep 4712"], capture_output=True, check=False).returncode == 1


def test_layers_stay_while_a_build_uses_them(build):
    build(f"FROM {BASE}\nRUN true\n")
    image = build.images.status(NAME)
    with build.images.stage() as stage:
        directories = build.images.keep_layers(stage, image.layers)
        build.images.remove(NAME)
        assert all(directory.is_dir() for directory in directories)
    Images(build.prefix / "var/lib/podwire/images")  # opening sweeps
    assert not directories[-1].exists()
