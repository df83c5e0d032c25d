"""The pages for people: each command in their console blocks is played, and says what the page shows.

In what is shown, `…` stands for anything, a number for any number, and spaces for any spaces. A command that only looks
may have to look again: what it shows may need a moment. What cannot be played here (somebody else's cluster) is in text
blocks.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir())
PLACES = ("*.md", "docs/*.md", "deploy/*.md", "benchmarks/*.md", "podwire/**/README.md")
WITHOUT_PREFIX = (
    "docs/cni-under-containerd.md",
    "docs/containerd.md",
    "docs/kubelet.md",
    "podwire/cniplugins/README.md",
)
"""They speak of sockets that a machine has but once."""
LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)#?([^)\s]*)\)")
PREFIX = "/srv/pw"
"""As the pages write it."""
SOON = 80.0
LOOKS = re.compile(
    r"(?!.*\bkill\b).*(kubectl (.* )?(get|describe|logs|events|exec|top)\b|podwire (trace|status)\b|ctr version)"
)
BRINGS_UP = re.compile(r"podwire (up|apiserver|runtime)\b")
NEEDS = re.compile(r"kubectl|podwire node exec")
FAILS = ("Error", "error", "podwire ", "denied")


@dataclass
class Shown:
    """One command of a page, and what the page shows of its output."""

    command: str
    lines: list[str] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        return bool(self.lines) and self.lines[0].startswith(FAILS)

    def happened(self, code: int, output: str) -> bool:
        return self.fits(output) and (code != 0) is self.fails

    def fits(self, output: str) -> bool:
        """Every line that is shown is there, in any order: what runs at the same time ends as it comes."""
        said = [line.strip() for line in output.splitlines()]
        for item in (line for line in self.lines if line.strip() != "…"):
            found = next((line for line in said if re.fullmatch(pattern(item), line)), None)
            if found is None:
                return False
            said.remove(found)
        return True


def pattern(line: str) -> str:
    """A line as it is shown, as an expression for the lines that it stands for."""
    parts = [re.escape(part) for part in line.strip().split("…")]
    joined = ".*".join(re.sub(r"(\\ )+", r"\\s+", part) for part in parts)
    return re.sub(r"\d+(ms|m|s|h)?", lambda found: r"\d+\w*" if found[1] else r"\d+", joined)


def minor_version() -> int:
    done = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, check=True)
    return int(json.loads(done.stdout)["clientVersion"]["minor"].rstrip("+"))


pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None or minor_version() < 30, reason="needs a kubectl that executes over WebSockets"
)


def shown(page: Path) -> list[Shown]:
    """The commands of a page's console blocks."""
    found: list[Shown] = []
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Shown(line.removeprefix("$ ").partition("   #")[0].rstrip()))
            elif line:
                found[-1].lines.append(line)
    return found


MACHINE = """\
ip link set lo up
for each in /var/lib /var/log /opt; do mount -t tmpfs machine $each; done
mount -t tmpfs upper /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work etc /etc
mkdir -p /etc/containerd /etc/cni/net.d
"""
"""State that is made without a prefix is in memory, also the slots by which clusters of one machine keep out of
each other's way."""
WHOLE = MACHINE + "mount -t tmpfs machine /run"
"""Also the sockets."""


class Reader:
    """Somebody who types what the pages say, at a machine with a network and processes of its own."""

    def __init__(self, furnish: str = MACHINE) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="pwx-", dir="/tmp"))
        self.prefix = self._home / "pw"  # a reader has no such directory yet, either
        self._variables = self._home / "variables"
        self._variables.write_text("")
        script = f"set -e; {furnish}\necho up; while :; do sleep 1000 & wait $!; done"
        self._machine = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "-nmpf", "--mount-proc", "--kill-child", "sh", "-c", script],
            stdout=subprocess.PIPE,
        )
        assert self._machine.stdout is not None
        assert self._machine.stdout.readline() == b"up\n"
        children = Path(f"/proc/{self._machine.pid}/task/{self._machine.pid}/children")
        self._first = children.read_text(encoding="ascii").split()[0]

    def types(self, command: str, folder: Path) -> tuple[int, str]:
        """In a shell that remembers variables from one command to the next."""
        line = command.replace(PREFIX, str(self.prefix))
        script = f"set -a; . {self._variables}; {line}\ncode=$?; export -p > {self._variables}; exit $code"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:{Path(sys.prefix) / 'debian/usr/bin'}"
        kubeconfig = str(self.prefix / "var/lib/podwire/kubeconfig")
        try:
            done = subprocess.run(
                ["nsenter", "-t", self._first, "-n", "-m", "-p", f"--wd={folder}", "sh", "-c", script],
                env={**os.environ, "PATH": path, "HOME": str(self._home), "KUBECONFIG": kubeconfig},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SOON,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            pytest.fail(f"{command}: nothing more after {SOON:g} s\n{(error.stdout or b'').decode()}\n{self._logs()}")
        return done.returncode, done.stdout.replace(str(self.prefix), PREFIX)

    def _logs(self) -> str:
        logs = (self.prefix / "var/log/podwire").glob("*.log")
        return "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in logs)

    def follows(self, page: Path, folder: Path | None = None) -> None:
        folder = folder or page.parent
        for step in shown(page):
            end = time.monotonic() + SOON
            code, output = self.types(step.command, folder)
            while LOOKS.match(step.command) and not step.happened(code, output) and time.monotonic() < end:
                time.sleep(0.1)
                code, output = self.types(step.command, folder)
            assert step.fits(output), f"{step.command}\nshall say\n{step.lines}\nand says\n{output}"
            assert step.happened(code, output), f"{step.command}: {code}\n{output}"

    def leaves(self, *prefix: str) -> None:
        code, output = self.types(" ".join(("podwire down", *prefix)), self._home)
        self._machine.kill()
        self._machine.communicate(timeout=SOON)
        assert code == 0, output
        shutil.rmtree(self._home)


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    reader = Reader()
    try:
        yield reader
    finally:
        reader.leaves("--prefix", PREFIX)


@pytest.fixture
def newcomer() -> Iterator[Reader]:
    """One who has no cluster yet."""
    reader = Reader()
    try:
        yield reader
    finally:
        reader.leaves("--prefix", PREFIX)


@pytest.fixture
def administrator(own_machine: None) -> Iterator[Reader]:
    """One who has a whole machine, as far as it can be seen."""
    reader = Reader(WHOLE)
    try:
        yield reader
    finally:
        reader.leaves()
        for path in Path("/sys/fs/cgroup").glob("*/k8s.io"):  # containerd's own, which it keeps
            with contextlib.suppress(OSError):  # or another containerd's
                path.rmdir()


@pytest.fixture
def cluster(reader: Reader) -> Reader:
    """It is up; again is fine."""
    code, output = reader.types(f"podwire up --detach --prefix {PREFIX}", ROOT)
    assert code == 0, output
    return reader


def pages() -> dict[str, str]:
    """Every page with commands, and who plays them."""
    found = sorted({path for place in PLACES for path in ROOT.glob(place)})
    return {str(item.relative_to(ROOT)): played_by(item) for item in found if shown(item)}


def played_by(page: Path) -> str:
    if str(page.relative_to(ROOT)) in WITHOUT_PREFIX:
        return "administrator"
    commands = "\n".join(step.command for step in shown(page))
    return "cluster" if NEEDS.search(commands) and not BRINGS_UP.search(commands) else "newcomer"


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_behaves_as_its_page_shows(cluster, example):
    cluster.follows(ROOT / "examples" / example / "README.md")


def test_the_examples_page_names_each(cluster):
    page = ROOT / "examples/README.md"
    cluster.follows(page)
    assert re.findall(r"^\| \[(\S+)\]\(\1\)", page.read_text(encoding="utf-8"), re.MULTILINE) == EXAMPLES


@pytest.mark.parametrize(("page", "played_by"), pages().items(), ids=list(pages()))
def test_a_page_shows_the_real_output(request, page, played_by):
    request.getfixturevalue(played_by).follows(ROOT / page, ROOT)


@pytest.mark.parametrize("page", [name for name, player in pages().items() if player == "cluster"])
def test_a_page_that_needs_a_cluster_shows_how_to_start_one(page):
    assert "up.md#up)" in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_links_to_the_list_of_examples(example):
    assert "](../README.md)" in (ROOT / "examples" / example / "README.md").read_text(encoding="utf-8")


def headings(page: Path) -> set[str]:
    """As links name them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", item.lower()).strip().replace(" ", "-") for item in found}


@pytest.mark.parametrize("place", [*PLACES, "examples/**/README.md"])
def test_a_link_of_a_page_leads_somewhere(place):
    for page in ROOT.glob(place):
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for path, heading in LINK.findall(text):
            target = page.parent / path if path else page
            assert target.exists(), f"{page.relative_to(ROOT)}: {path}"
            assert not heading or heading in headings(target), f"{page.relative_to(ROOT)}: {path}#{heading}"


@pytest.mark.parametrize(
    ("line", "output", "fits"),
    [
        pytest.param("web   1/1   Running   12s", "web  1/1  Running   1m12s", True, id="spaces and ages"),
        pytest.param("web 1/1 Running", "web 1/1 Pending", False, id="another word"),
        pytest.param("…address 10.101.0.2…", "its address 10.7.33.250, too", True, id="anything"),
        pytest.param("hello", "well\nhello\nagain", True, id="among other lines"),
        pytest.param("hello", "hello world", False, id="whole lines"),
    ],
)
def test_a_shown_line_matches_similar_output(line, output, fits):
    assert Shown("x", [line]).fits(output) is fits
