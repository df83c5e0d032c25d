"""The table of the benchmarks: what is compared how, and what it says about budgets."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import MEASURED, Figure, Peer, as_json, table

ROOT = Path(__file__).parents[2]


def figure(value: float, unit: str, peer: Peer | None = None) -> Figure:
    return Figure(group="Group", what="work", value=value, unit=unit, peer=peer)


@pytest.mark.parametrize(
    ("value", "unit", "budget", "met"),
    [
        pytest.param(200, "/s", 1.0, True, id="twice as many"),
        pytest.param(70, "/s", 0.7, True, id="as many as was promised"),
        pytest.param(69, "/s", 0.7, False, id="fewer than was promised"),
        pytest.param(200, " ms", 1.0, False, id="twice as long"),
        pytest.param(50, " ms", 0.5, True, id="as long as was promised"),
        pytest.param(34, " MB", 1 / 3, False, id="more than a third"),
        pytest.param(1, " ms", None, None, id="no promise"),
    ],
)
def test_rates_must_be_high_times_and_sizes_low(value, unit, budget, met):
    assert figure(value, unit, Peer("theirs", 100, budget)).met is met


def test_without_a_peer_there_is_nothing_to_compare():
    alone = figure(1, "/s")
    assert (alone.ratio, alone.met) == (None, None)


def test_the_table_names_missing_peers_and_counts_budgets():
    figures = [
        figure(1890, "/s", Peer("kube", 945, 1.0)),
        figure(12.34, " ms", Peer("kube", 6, 1.0)),
        figure(3, "/s", Peer("etcd", 4, None, MEASURED)),
    ]
    lines = table(figures).splitlines()
    assert lines[2:6] == [
        "Group",
        "  work  1 890/s                   945/s*  2.00x    ≥ 1x  met",
        "  work  12.3 ms                 6.00 ms*  2.06x    ≤ 1x  NOT MET",
        "  work   3.00/s                  4.00/s   0.75x",
    ]
    assert lines[-2].startswith("* kube: recorded earlier")
    assert lines[-1] == "budgets: 1 of 2 met"


def test_json_has_the_verdict_too():
    [document] = as_json([figure(1, "/s", Peer("theirs", 2, 1.0))])
    assert (document["ratio"], document["met"], document["peer"]["name"]) == (0.5, False, "theirs")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)


def test_a_part_that_there_is_not_is_a_mistake_and_the_others_are_named():
    done = run("stroe")
    assert done.returncode == 2
    assert "no such part: stroe; there are start, api, watch, store" in done.stderr


def test_the_store_is_measured_beside_etcd():
    done = run("store", "--seconds", "0.2", "-o", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {figure["what"] for figure in document["figures"]} >= {
        "SQLite, 1 caller",
        "SQLite, 64 callers",
        "etcd, 8 callers",
    }
    assert all(figure["value"] > 0 for figure in document["figures"])
