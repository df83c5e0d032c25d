"""A story as a page: what is in it, and that it needs nothing else."""

import itertools
import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from podwire.trace.check import annotated, brief
from podwire.trace.flow import load
from podwire.trace.html import _sums, html
from podwire.trace.pod_trace import shorten
from podwire.trace.svg import PIECE, Picture

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def page(trace, records) -> str:
    return html(annotated(trace, load("pod")), records)


def drawings(page: str) -> list[ET.Element]:
    return [ET.fromstring(match) for match in re.findall(r'<svg class="(?:head|piece)".*?</svg>', page, re.DOTALL)]


def rows(page: str) -> list[ET.Element]:
    return [item for one in drawings(page) for item in one.iter(f"{SVG}g") if item.get("class", "").startswith("row")]


def test_every_arrow_is_a_row_with_a_tooltip(page, trace):
    found = rows(page)
    assert len(found) == len(trace.arrows)
    [run] = [item for item in found if "RunPodSandbox" in "".join(item.itertext()) and "call" in item.get("class")]
    assert run.find(f"{SVG}title").text.splitlines() == [
        "Kubelet → ContainerRuntime",
        "RunPodSandbox",
        "+12.0 ms, took 3.0 ms",
    ]


def test_participants_have_lanes_and_arrows_point_between_them(page):
    head = drawings(page)[0]
    lanes = {item.find(f"{SVG}title").text: float(item.find(f"{SVG}text").get("x")) for item in head.iter(f"{SVG}g")}
    assert list(lanes)[:4] == ["User", "KubeCtl", "APIServer", "etcd"]
    for row in rows(page):
        line = row.find(f"{SVG}line")
        if line is not None:
            caller, callee = row.find(f"{SVG}title").text.splitlines()[0].split(" → ")
            assert abs(float(line.get("x1")) - lanes[caller]) == 5
            assert abs(float(line.get("x2")) - lanes[callee]) == 5


def test_notes_gaps_failures_and_open_calls_are_drawn(records, tell):
    del records[18]
    records[12] = msgspec.structs.replace(records[12], outcome="409")
    page = html(annotated(tell(records[:20]), load("pod")), records)
    assert "5. Kubelet initiates Pod creation via CRI." in page
    assert "1 record of Kubelet lost here" in page
    assert 'class="row reply failed"' in page
    assert 'class="row call open"' in page


def test_each_arrow_has_the_details_of_its_record(page, records):
    [data] = re.findall(r'<script type="application/json" id="records">(.*?)</script>', page, re.DOTALL)
    answer = json.loads(data)
    assert len(answer) == len(records)
    found = {row.get("data-n") for row in rows(page)}
    assert set(answer) <= found
    assert {item["method"] for item in answer.values()} == {record.method for record in records}
    assert [item["detail"]["stdout"] for item in answer.values() if "stdout" in item["detail"]] == [
        {"ips": [{"address": "10.1.0.2/24"}]}
    ]


def test_details_that_are_too_many_are_left_out_by_size(trace, records):
    [data] = re.findall(r'id="records">(.*?)</script>', html(trace, records, most_details=2000), re.DOTALL)
    assert any("cut" in shown["detail"] for shown in json.loads(data).values())


def test_the_page_loads_nothing_and_runs_only_its_own_script(page):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    [style] = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [b64encode(sha256(item.encode()).digest()).decode() for item in (style, script)]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; base-uri 'none'"
    )
    assert not re.findall(r'(?:src|href)="|url\(|@import|https?://(?!www\.w3\.org/2000/svg)', page)
    assert not re.findall(r' style="', page)


def test_a_long_trace_is_drawn_in_adjacent_pieces(trace, records, tell):
    many = [
        msgspec.structs.replace(
            records[14], id=f"Kubelet-1.a{number}", seq=100 + number, time=records[14].time + number / 1e5
        )
        for number in range(3 * PIECE)
    ]
    picture = Picture(tell([*records, *many]))
    boxes = [tuple(map(float, re.search(r'viewBox="([^"]+)"', piece)[1].split())) for piece in picture.pieces()]
    assert len(boxes) == -(-(len(trace.arrows) + 3 * PIECE) // PIECE)
    for (_, top, _, height), (_, following, _, _) in itertools.pairwise(boxes):
        assert top + height == following


def test_a_trace_that_is_too_long_is_shortened_visibly(records, tell):
    many = [
        msgspec.structs.replace(
            records[14], id=f"Kubelet-1.a{number}", seq=100 + number, time=records[14].time + number / 1e7
        )
        for number in range(500)
    ]
    trace = tell([*records, *many])
    short = shorten(trace, 100)
    assert len(short.arrows) == 100
    assert (short.cuts[0].arrows, len(trace.arrows) - 100) == (len(trace.arrows) - 100,) * 2
    assert short.arrows[0] == trace.arrows[0]
    assert short.arrows[-1] == trace.arrows[-1]
    assert f"{len(trace.arrows) - 100} arrows are left out here" in html(short, [])
    assert shorten(trace) is trace


def test_a_life_that_was_recorded_for_real_is_drawn_to_its_end(tell):
    from podwire.trace.record import decode

    lines = (Path(__file__).parent / "data" / "life.jsonl").read_bytes().splitlines()
    records = [decode(line) for line in lines]
    trace = tell(records)
    assert trace.gaps == ()
    labels = [arrow.method for arrow in trace.arrows]
    assert labels.index("RunPodSandbox") < labels.index("StopPodSandbox") < labels.index("DEL bridge")
    assert "delete /registry/pods/default/web" in labels
    assert len(rows(html(trace, records))) == len(trace.arrows)


def test_a_brief_page_has_the_sums_of_the_whole_trace(trace):
    part = brief(trace, load("pod"))
    assert _sums(trace) in html(part, [], trace)
    assert _sums(part) != _sums(trace)
    bars = Picture(part)._bars
    assert max(bar.bottom for bar in bars if bar.lane == "ContainerRuntime") < Picture(part)._height
