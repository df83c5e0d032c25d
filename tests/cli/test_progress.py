import io
from pathlib import Path

import pytest

from podwire.cli.progress import CLEAR, UP, Lines, Live
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.supervisor import Event

STORY = [
    Event(component="apiserver", what="started", seconds=0.0, detail="pid 1"),
    Event(component="runtime", what="started", seconds=0.0, detail="pid 2"),
    Event(component="runtime", what="ready", seconds=0.04),
    Event(component="apiserver", what="died", seconds=0.1, detail="exit code 1"),
    Event(component="apiserver", what="ready", seconds=0.05),
    Event(component="", what="up", seconds=0.3),
    Event(component="runtime", what="died", seconds=9.0, detail="killed by SIGKILL"),
]


def rendered(kind):
    out = io.StringIO()
    tell = kind(Layout(Path("/tmp/pw")), out)
    for item in STORY:
        tell(item)
    return out.getvalue()


def screen(text):
    """The final content of a terminal."""
    rows, at = [], 0
    for whole in text.split("\n"):
        line = whole.replace(CLEAR, "")
        if line.startswith("\033["):
            count, _, line = line.removeprefix("\033[").partition("A")
            at -= int(count)
        rows[at:] = [line, *rows[at + 1 :]]
        at += 1
    return rows


def test_plain_lines_report_each_change_once():
    assert rendered(Lines).splitlines() == [
        "  runtime    ready        40 ms",
        "  apiserver  died     exit code 1; restarting",
        "  apiserver  ready        50 ms",
        "  cluster    ready       300 ms",
        "  runtime    died     killed by SIGKILL; restarting",
    ]


def test_a_terminal_has_one_line_for_each_component_until_all_are_up():
    assert screen(rendered(Live)) == [
        "  apiserver  ready        50 ms",
        "  runtime    ready        40 ms",
        "  cluster    ready       300 ms",
        "  runtime    died     killed by SIGKILL; restarting",
        "",
    ]


def test_without_a_terminal_nothing_moves_the_cursor():
    assert "\033" not in rendered(Lines)
    assert UP.format(2) in rendered(Live)


def test_a_component_that_fails_for_good_is_shown_with_the_end_of_its_log(tmp_path, capsys):
    layout = Layout(tmp_path)
    layout.logs.mkdir(parents=True)
    layout.log("runtime").write_text("".join(f"line {number}\n" for number in range(40)))
    Lines(layout, io.StringIO())(Event(component="", what="failed", seconds=1.0, detail="runtime"))
    said = capsys.readouterr().err.splitlines()
    assert "runtime did not start" in said[0]
    assert said[-1] == "  line 39"
    assert len(said) == 16


@pytest.mark.parametrize("kind", [Lines, Live])
def test_a_component_without_a_log_fails_all_the_same(kind, tmp_path, capsys):
    kind(Layout(tmp_path), io.StringIO())(Event(component="", what="failed", seconds=1.0, detail="runtime"))
    assert "runtime did not start" in capsys.readouterr().err
