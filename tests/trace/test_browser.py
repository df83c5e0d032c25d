"""The page in a real Chromium, without a window: no script fails, nothing foreign runs, and it looks as it should.

`PODWIRE_DOCS=1 pytest tests/trace/test_browser.py` makes docs/trace.png anew.
"""

import os
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import msgspec
import pytest

from podwire.trace.check import annotated
from podwire.trace.flow import load
from podwire.trace.html import html
from podwire.trace.record import decode

PICTURE = Path(__file__).parents[2] / "docs/trace.png"
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PROGRAM = next(filter(None, map(shutil.which, PROGRAMS)), None)
SECONDS = 120
SIZE = (1660, 1300)

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs Chromium; scripts/setup installs it")


class Browser:
    """Every page is opened by a browser of its own, with a home of its own, that reaches nobody."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def open(self, page: Path, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [
                "setpriv", "--pdeathsig", "KILL", "unshare", "-n",
                str(PROGRAM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--enable-logging=stderr", f"--user-data-dir={self._home}", "--virtual-time-budget=3000",
                *words, page.as_uri(),
            ],
            capture_output=True, text=True, timeout=SECONDS, check=False,
            env={"HOME": str(self._home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    def dom(self, page: Path) -> tuple[str, list[str]]:
        """The document after its scripts ran, and what they said in the console."""
        done = self.open(page, "--dump-dom")
        return done.stdout, re.findall(r":CONSOLE[:(]\d+\)?\] (.+)", done.stderr)


@pytest.fixture
def browser(tmp_path) -> Browser:
    return Browser(tmp_path / "home")


@pytest.fixture
def real(tell):
    lines = (Path(__file__).parent / "data" / "life.jsonl").read_bytes().splitlines()
    records = [decode(line) for line in lines]
    return annotated(tell(records), load("pod")), records


@pytest.fixture
def page(tmp_path, real) -> Path:
    path = tmp_path / "page.html"
    path.write_text(html(*real), encoding="utf-8")
    return path


def test_a_page_opens_and_its_script_has_nothing_to_complain_about(browser, page):
    dom, said = browser.dom(page)
    assert said == []
    assert '<div class="tools">' in dom, "the script shows the tools when it works"
    assert dom.count("<svg") > 2


def test_a_script_that_fails_would_be_noticed(browser, page):
    page.write_text(page.read_text().replace('"records"', '"nothing"', 1))
    page.write_text(re.sub(r"<meta http-equiv[^>]+>", "", page.read_text()))
    _, said = browser.dom(page)
    assert any("Uncaught TypeError" in item for item in said)


def test_clicks_show_details_and_buttons_zoom(browser, page):
    play = """<script>
      const row = [...document.querySelectorAll("g.row")].find((each) => each.textContent.includes("RunPodSandbox"));
      row.dispatchEvent(new MouseEvent("click", {bubbles: true}));
      document.querySelector('[data-does="larger"]').click();
    </script></body>"""
    page.write_text(re.sub(r"<meta http-equiv[^>]+>", "", page.read_text()).replace("</body>", play))
    dom, said = browser.dom(page)
    assert said == []
    [panel] = re.findall(r'<aside id="detail">.*?</aside>', dom, re.DOTALL)
    assert "RunPodSandbox" in panel
    assert "&quot;outcome&quot;" in panel or '"outcome"' in panel
    width = float(re.search(r'<svg class="head"[^>]* width="([\d.]+)"', dom)[1])
    begins_with = 0.7  # the window is narrow: the page begins as small as it gets by itself, and is larger by one step
    assert width == pytest.approx(1.25 * begins_with * float(re.search(r'viewBox="0 0 (\d+)', dom)[1]))


OWN = "document.title='owned'"
HOSTILE = f'</script></title><script>{OWN}</script><img src=x onerror="{OWN}">\x1b[2J\u202e'


def test_nothing_that_names_carry_is_run(browser, tmp_path, records, tell):
    dark = [
        msgspec.structs.replace(record, detail=record.detail | {"name": HOSTILE, "stdout": HOSTILE}, callee=HOSTILE)
        if record.detail.get("name")
        else record
        for record in records
    ]
    path = tmp_path / "dark.html"
    path.write_text(html(tell(dark, HOSTILE), dark), encoding="utf-8")
    dom, said = browser.dom(path)
    assert said == []
    assert "<title>owned</title>" not in dom
    assert "<img" not in dom


def test_even_if_a_text_were_not_escaped_the_policy_would_let_nothing_run(browser, page):
    page.write_text(page.read_text().replace("</header>", "<script>document.title='owned'</script></header>"))
    dom, said = browser.dom(page)
    assert "<title>owned</title>" not in dom
    assert any("Content Security Policy" in item for item in said)


def pixels(picture: bytes) -> tuple[int, int, int]:
    """Width, height, and how many colours there are, of a PNG of eight bits a colour."""
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    place, data, width, height, depth = 8, b"", 0, 0, 0
    while place < len(picture):
        length, kind = struct.unpack_from(">I4s", picture, place)
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack_from(">IIBB", picture, place + 8)
            depth = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            data += picture[place + 8 : place + 8 + length]
        place += 12 + length
    lines = zlib.decompress(data)
    size = 1 + width * depth
    return width, height, len({lines[row * size + 1 : (row + 1) * size] for row in range(height)})


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_looks_like_something(browser, page, tmp_path, dark):
    shot = tmp_path / "shot.png"
    words = ["--blink-settings=preferredColorScheme=0"] if dark else []
    browser.open(page, f"--screenshot={shot}", f"--window-size={SIZE[0]},{SIZE[1]}", *words)
    width, height, different = pixels(shot.read_bytes())
    assert (width, height) == SIZE
    assert different > 100, "lines that differ from each other: an empty page has few"
    if os.environ.get("PODWIRE_DOCS") and not dark:
        shutil.copyfile(shot, PICTURE)


def test_the_picture_in_the_docs_is_one_of_these():
    assert pixels(PICTURE.read_bytes())[:2] == SIZE


def test_it_can_be_printed(browser, page, tmp_path):
    paper = tmp_path / "page.pdf"
    browser.open(page, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    printed = paper.read_bytes()
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 1, "more than one page: it breaks between pieces"
