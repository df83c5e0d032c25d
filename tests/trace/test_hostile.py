"""Objects whose names want more than to be names: whatever a story is shown as, nothing acts and nothing is lost."""

import json
import re
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.cli.main import main
from podwire.cluster.tracing import CollectorOptions
from podwire.trace.check import check
from podwire.trace.diff import diff
from podwire.trace.flow import load
from podwire.trace.html import html
from podwire.trace.mermaid import mermaid
from podwire.trace.plain_text import plain
from podwire.trace.pod_trace import PodTraces
from podwire.trace.record import Record, encode
from podwire.trace.segments import Writer
from podwire.trace.spans import spans
from podwire.trace.tables import compared, seen, slowest
from podwire.trace.text import text

ANSI = "\x1b[2J\x1b[31mred\x1b]0;title\x07"
MARKUP = "</title></script><script>boom()</script><img src=x onerror=boom()>\"'&amp;"
MERMAID = "x;y\n    participant evil\n%%{init: {'securityLevel':'loose'}}%% #quot; click"
TURNED = "\u202egnp.exe\u2066\u200f"
NAMES = {"ansi": ANSI, "markup": MARKUP, "mermaid": MERMAID, "turned": TURNED}
STATEMENT = re.compile(
    r"    (participant \w+( as .+)?|Note over \w+(,\w+)?: .+|\w+(->>|-->>|--x|-\))\w+: .+)", re.ASCII | re.DOTALL
)


@pytest.fixture(params=NAMES.values(), ids=NAMES.keys())
def name(request) -> str:
    return request.param


@pytest.fixture
def hostile(records, name):
    """A pod of that name; a participant, a call, an error and an image of that name, too."""
    own = []
    for record in records:
        detail = record.detail | ({"name": name} if record.detail.get("name") else {})
        own.append(msgspec.structs.replace(record, detail=detail, method=record.method.replace("web", name)))
    stranger = {"id": "Kubelet-1.99", "seq": 90, "pod": records[8].pod, "time": records[8].time}
    base = msgspec.structs.replace(records[8], outcome="", callee=name, method=f"{name} do", **stranger)
    end = msgspec.structs.replace(
        base, seq=91, outcome="UNKNOWN", caller=name, callee=base.caller, detail={"error": name}
    )
    image = msgspec.structs.replace(
        records[18], detail={"request": {"image": {"image": name}}}, seq=92, id="Kubelet-1.98"
    )
    return [*own, base, end, image]


@pytest.fixture
def dark(hostile, tell, name):
    return tell(hostile, name)


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("colours", [False, True])
def test_text_has_no_control_character_but_our_colours(dark, width, colours, name):
    drawn = text(dark, width, colours=colours)
    bare = re.sub(r"\x1b\[[0-9;]+m", "", drawn) if colours else drawn
    assert all(line.isprintable() for line in bare.splitlines())
    if not colours:
        assert plain(name)[:20] in drawn
    allowed = {
        "\x1b[2m",
        "\x1b[1m",
        "\x1b[36m",
        "\x1b[32m",
        "\x1b[33m",
        "\x1b[1;31m",
        "\x1b[1;34m",
        "\x1b[35m",
        "\x1b[0m",
    }
    assert set(re.findall(r"\x1b\[[0-9;]+m", drawn)) <= allowed


def test_tables_have_no_control_character(dark, name):
    for item in (seen([dark]), slowest([dark]), compared(diff(dark, dark))):
        assert all(line.isprintable() for line in item.splitlines())
        assert plain(name) in item


def test_mermaid_is_statements_of_ours_alone(dark, name):
    first, *lines = mermaid(dark).splitlines()
    assert first == "sequenceDiagram"
    assert [line for line in lines if not STATEMENT.fullmatch(line)] == []
    body = "\n".join(lines)
    assert "participant evil" not in [line.strip() for line in lines]
    assert not re.search(r"[<>&%$]|;(?!\S*)", re.sub(r"--?>>|-\)|#\d+;", "", body))
    result = re.sub(r"#(\d+);", lambda found: chr(int(found[1])), body)
    assert plain(name).strip() in result


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.reported = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.reported += data


def test_a_page_has_only_its_own_elements(dark, hostile, name):
    page = Page()
    written = html(dark, hostile)
    page.feed(written)
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert not [key for key, _ in page.attributes if key.startswith("on") or key in ("style", "href", "src")]
    assert plain(name) in page.reported
    assert all(line.isprintable() or "\t" in line for line in written.splitlines())


def test_json_has_the_name_as_it_is_and_no_control_character(hostile, name, tmp_path, capsys):
    writer = Writer(CollectorOptions.below(tmp_path).directory)
    writer.write([encode(item) for item in hostile])
    writer.close()
    assert main(["trace", "--last", "--format", "json", "--prefix", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert all(line.isprintable() for line in output.splitlines())
    assert name in {item["detail"].get("name") for item in json.loads(output)}
    for words in (["--last"], ["--slow"], [], ["--last", "--check", "pod"], ["--last", "--format", "html"]):
        main(["trace", *words, "--prefix", str(tmp_path)])
        assert all(line.isprintable() for line in capsys.readouterr().out.splitlines()), words


def test_findings_can_be_printed(dark):
    for item in check(dark, load("nri")):
        assert plain(str(item)).isprintable()


KEYS = st.sampled_from([
    "name", "namespace", "phase", "nodeName", "type", "request", "response", "stdout", "stdin", "error", "devices",
    "ips", "claims", "adjust", "container", "config", "metadata", "image", "status", "network", "socket",
    "kubectl_session", "kubectl_command", "container_requests", "devices_ids", "code", "env",
])  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
PEOPLE = st.sampled_from(
    ["Kubelet", "APIServer", "etcd", "ContainerRuntime", "DevicePlugin", "NetworkDriver", "x\x1b<"]
)
METHODS = st.sampled_from([
    "POST /api/v1/namespaces/a/pods", "PATCH /api/v1/namespaces/a/pods/b/status", "GET /api/v1/pods?watch=true",
    "RunPodSandbox", "NodePrepareResources", "Allocate", "ListAndWatch", "NRI RunPodSandbox",
    "create /registry/pods/a/b", "ADD x", "PUT /apis/resource.k8s.io/v1/resourceslices/x", "", "\x1b;\n",
])  # fmt: skip
RECORDS = st.builds(
    Record,
    id=st.sampled_from(["a-1.1", "a-1.2", "b-1.1", "odd", ""]),
    seq=st.integers(0, 9),
    time=st.floats(0, 1e10),
    caller=PEOPLE,
    callee=PEOPLE,
    method=METHODS,
    pod=st.sampled_from([None, "3bba3e288f2d47ce8c5bf9d5d263d9fc"]),
    outcome=st.sampled_from(["", "OK", "EVENT", "200", "404", "UNKNOWN"]),
    detail=st.dictionaries(KEYS, JSON, max_size=5),
)


@given(st.lists(RECORDS, max_size=12))
def test_any_recorded_text_can_be_shown(records):
    traces = PodTraces()
    traces.learn(records)
    for trace in traces.all():
        for item in (text(trace, 80), text(trace, 200, colours=True), mermaid(trace), html(trace, records)):
            assert item
        assert compared(diff(trace, trace))
        assert slowest([trace])
        check(trace, load("pod"))
    spans(records)
