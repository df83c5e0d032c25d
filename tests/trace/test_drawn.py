"""Stories for people: drawn with characters, as Mermaid, in a table."""

import re
from dataclasses import replace

import msgspec
import pytest

from podwire.trace.check import annotated
from podwire.trace.flow import load
from podwire.trace.mermaid import escaped, mermaid
from podwire.trace.tables import seen
from podwire.trace.text import text

PARTICIPANTS = ["User", "KubeCtl", "APIServer", "etcd", "Scheduler", "Kubelet", "ContainerRuntime", "CNIPlugin"]
STATEMENT = re.compile(
    r"    (participant \w+( as .+)?|Note over \w+(,\w+)?: .+|\w+(->>|-->>|--x|-\))\w+: .+)", re.ASCII | re.DOTALL
)


@pytest.mark.parametrize("width", [40, 80, 100, 120, 140, 200])
def test_no_line_is_wider_than_the_terminal(width, trace):
    assert max(map(len, text(annotated(trace, load("pod")), width).splitlines())) <= width


def test_a_wide_terminal_shows_a_lane_for_each_participant(trace):
    head = text(trace, 140).splitlines()[2]
    assert head.split() == ["time", "took", *PARTICIPANTS]


def test_arrows_point_from_the_caller_to_the_callee(trace):
    lines = text(trace, 140).splitlines()
    lanes = {participant: lines[2].index(participant) + len(participant) // 2 for participant in PARTICIPANTS}
    label = next(number for number, line in enumerate(lines) if "RunPodSandbox" in line)
    stroke = lines[label + 1]
    assert stroke[lanes["ContainerRuntime"] - 1] == "▶"
    assert set(stroke[lanes["Kubelet"] + 1 : lanes["ContainerRuntime"] - 1]) == {"─"}
    assert "+12.0 ms" in lines[label]


def test_a_narrow_terminal_shows_a_line_for_each_arrow(trace):
    lines = text(trace, 80).splitlines()
    assert "  +14.0 ms    1.0 ms CNIPlugin ⇢ ContainerRuntime: OK 10.1.0.2/24" in lines
    assert not any("│" in line for line in lines)


def test_a_label_that_does_not_fit_is_below_its_arrow(trace):
    lines = text(annotated(trace, load("pod")), 40).splitlines()
    answer = lines.index("  +14.0 ms    1.0 ms CNIPlugin ⇢")
    assert lines[answer : answer + 3] == [
        "  +14.0 ms    1.0 ms CNIPlugin ⇢",
        f"{'':21}ContainerRuntime",
        "    OK 10.1.0.2/24",
    ]
    assert not any("…" in line for line in lines)


def failing(records):
    """The same records with a binding that conflicts."""
    return [
        msgspec.structs.replace(record, outcome="409")
        if record.method.endswith("/binding") and record.outcome
        else record
        for record in records
    ]


def test_a_failed_call_and_one_that_is_not_finished_look_different(records, tell):
    drawn = text(tell(failing(records[:15])), 140)
    assert "409 Conflict" in drawn
    assert "╌✕" in drawn
    assert "…" in drawn.splitlines()[-2]  # RunPodSandbox is under way


def test_gaps_are_drawn(records, tell):
    del records[18]
    assert "~~~ 1 record of Kubelet lost here ~~~" in text(tell(records), 140)
    assert "Note over User: 1 record of Kubelet lost here" in mermaid(tell(records))


def test_mermaid_is_a_sequence_diagram_of_nothing_but_statements(records, tell):
    first, *lines = mermaid(annotated(tell(failing(records)), load("pod"))).splitlines()
    assert first == "sequenceDiagram"
    assert [line for line in lines if not STATEMENT.fullmatch(line)] == []
    assert [line.split()[1] for line in lines if line.startswith("    participant")] == PARTICIPANTS
    assert "    Kubelet->>ContainerRuntime: RunPodSandbox" in lines
    assert "    APIServer-->>KubeCtl: 404 Not Found (1.0 ms)" in lines, "kubectl looks before it creates"
    assert "    APIServer--xScheduler: 409 Conflict (3.0 ms)" in lines
    assert "    Note over Kubelet,ContainerRuntime: 5. Kubelet initiates Pod creation via CRI." in lines


@pytest.mark.parametrize("name", ["my-operator", "end", "Participant", "Größe", "a b", "x;y", "details", "p1"])
def test_a_stranger_among_the_participants_has_an_alias(name, records, tell):
    stranger = msgspec.structs.replace(records[8], id="x-1.99", callee=name)
    lines = mermaid(tell([*records, stranger])).splitlines()[1:]
    assert [line for line in lines if not STATEMENT.fullmatch(line)] == []
    assert f"    participant p8 as {escaped(name)}" in lines


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("a;b", "a#59;b"),
        ("#1", "#35;1"),
        ("two\nlines", "two\\nlines"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("", "-"),
        ("<script>&", "#60;script#62;#38;"),
        ("%%{init: 1}%%", "#37;#37;{init: 1}#37;#37;"),
        ("$$x$$", "#36;#36;x#36;#36;"),
        ("wrap: it", "#119;rap: it"),
        ("style a:b#1", "#115;tyle a:b#35;1"),
    ],
)
def test_labels_mean_nothing_to_mermaid(label, shown):
    assert escaped(label) == shown


def test_the_table_has_a_line_for_each_pod(trace):
    head, line = seen([trace]).splitlines()
    assert head.split()[:2] == ["POD", "STARTED"]
    assert line.split() == ["default/web", "08:00:00.004Z", "23.0", "ms", "29", trace.pod]


def test_pods_of_several_days_are_listed_with_their_dates(trace):
    _, *lines = seen([trace, replace(trace, begin=trace.begin + 24 * 3600)]).splitlines()
    assert [line.split()[1] for line in lines] == ["2027-01-15T08:00:00.004Z", "2027-01-16T08:00:00.004Z"]
