"""The pages for people: each command on them is played on a real cluster, and says what the page shows.

In what is shown, `…` stands for anything, a number for any number, and spaces for any spaces. A command that only looks
may have to look again: what it shows may need a moment.
"""

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
EXAMPLES = sorted(each.name for each in (ROOT / "examples").iterdir() if each.is_dir())
PREFIX = "/tmp/pw"
"""As the pages write it."""
SOON = 80.0
LOOKS = re.compile(r"kubectl (get|describe|logs|events|exec)|podwire (trace|status)")
FAILS = ("Error", "error", "podwire ")


@dataclass
class Shown:
    """One command of a page, and what the page shows of its output."""

    command: str
    lines: list[str] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        return bool(self.lines) and self.lines[0].startswith(FAILS)

    def fits(self, output: str) -> bool:
        """Every line that is shown is there, in any order: what runs at the same time ends as it comes."""
        said = [each.strip() for each in output.splitlines()]
        for each in self.lines:
            found = next((line for line in said if re.fullmatch(pattern(each), line)), None)
            if found is None and each.strip() != "…":
                return False
            if found is not None:
                said.remove(found)
        return True


def pattern(line: str) -> str:
    """A line as it is shown, as an expression for the lines that it stands for."""
    parts = [re.escape(part) for part in line.strip().split("…")]
    joined = ".*".join(re.sub(r"(\\ )+", r"\\s+", part) for part in parts)
    return re.sub(r"\d+(ms|m|s|h)?", lambda found: r"\d+\w*" if found[1] else r"\d+", joined)


def minor_version() -> int:
    told = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, check=True)
    return int(json.loads(told.stdout)["clientVersion"]["minor"].rstrip("+"))


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


class Reader:
    """Somebody who types what the pages say, at a machine with a network of its own and one cluster."""

    def __init__(self) -> None:
        self.prefix = Path(tempfile.mkdtemp(prefix="pwx-", dir="/tmp"))
        self._variables = self.prefix / "variables"
        self._variables.write_text("")
        self._machine = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "-n", "sh", "-c", "ip link set lo up && echo up && read _"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._machine.stdout is not None
        assert self._machine.stdout.readline() == b"up\n"

    def types(self, command: str, folder: Path) -> tuple[int, str]:
        """In a shell that remembers variables from one command to the next."""
        line = command.replace(PREFIX, str(self.prefix))
        script = f"set -a; . {self._variables}; {line}\ncode=$?; export -p > {self._variables}; exit $code"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:{Path(sys.prefix) / 'debian/usr/bin'}"
        kubeconfig = str(self.prefix / "var/lib/podwire/kubeconfig")
        try:
            done = subprocess.run(
                ["nsenter", "-t", str(self._machine.pid), "-n", "sh", "-c", script],
                cwd=folder,
                env={**os.environ, "PATH": path, "HOME": str(self.prefix), "KUBECONFIG": kubeconfig},
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
        return "\n".join(f"{each.name}:\n{each.read_text()[-2000:]}" for each in logs)

    def follows(self, page: Path, folder: Path | None = None) -> None:
        folder = folder or page.parent
        for each in shown(page):
            end = time.monotonic() + SOON
            code, output = self.types(each.command, folder)
            while LOOKS.search(each.command) and not each.fits(output) and time.monotonic() < end:
                time.sleep(0.1)
                code, output = self.types(each.command, folder)
            assert each.fits(output), f"{each.command}\nshall say\n{each.lines}\nand says\n{output}"
            assert (code != 0) is each.fails, f"{each.command}: {code}\n{output}"

    def leaves(self) -> None:
        code, output = self.types(f"podwire down --prefix {PREFIX}", self.prefix)
        self._machine.communicate(b"\n", timeout=SOON)
        assert code == 0, output
        shutil.rmtree(self.prefix)


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    reader = Reader()
    try:
        yield reader
    finally:
        reader.leaves()


@pytest.fixture
def newcomer() -> Iterator[Reader]:
    """One who has no cluster yet."""
    reader = Reader()
    try:
        yield reader
    finally:
        reader.leaves()


@pytest.fixture
def cluster(reader: Reader) -> Reader:
    """It is up; again is fine."""
    code, output = reader.types(f"podwire up --detach --prefix {PREFIX}", ROOT)
    assert code == 0, output
    return reader


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_does_what_its_page_says(cluster, example):
    cluster.follows(ROOT / "examples" / example / "README.md")


def test_the_examples_page_names_each(cluster):
    page = ROOT / "examples/README.md"
    cluster.follows(page)
    assert re.findall(r"^\| \[(\S+)\]\(\1\)", page.read_text(encoding="utf-8"), re.MULTILINE) == EXAMPLES


@pytest.mark.parametrize("page", ["README.md", "docs/up.md", "docs/hardware.md", "docs/cni.md", "docs/nri-tools.md"])
def test_a_page_tells_the_truth(newcomer, page):
    newcomer.follows(ROOT / page, ROOT)


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
def test_a_line_stands_for_lines_like_it(line, output, fits):
    assert Shown("x", [line]).fits(output) is fits
