"""`podwire trace`: which pod is meant, what goes together, what is said when it does not."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from podwire.cli.main import main
from podwire.cluster.tracing import CollectorOptions
from podwire.trace.record import Record, decode, encode, pod_id
from podwire.trace.segments import Writer

HERE = Path(__file__).parents[1] / "trace"
OTHER = "11111111-2222-4333-8444-555555555555"


def life() -> list[Record]:
    return [decode(line) for line in (HERE / "data/life.jsonl").read_bytes().splitlines()]


def another(records: list[Record], name: str, uid: str, later: float, slower: float) -> list[Record]:
    """The same life of another pod, whose sandbox takes longer."""
    turned = next(record.time for record in records if record.method == "RunPodSandbox" and record.ends)
    found = []
    for record in records:
        if record.pod is None:
            continue
        time = record.time + later + (slower if record.time >= turned else 0.0)
        detail = json.loads(json.dumps(record.detail).replace('"web"', f'"{name}"'))
        detail = {key: value for key, value in detail.items() if not key.startswith("kubectl")}
        found.append(
            msgspec.structs.replace(
                record,
                id=f"{record.id}{name}",
                pod=pod_id(uid),
                time=time,
                seq=record.seq + 10_000,
                method=record.method.replace("/web", f"/{name}"),
                detail=detail,
            )
        )
    return found


@pytest.fixture
def kept(tmp_path) -> Path:
    records = life()
    writer = Writer(CollectorOptions.below(tmp_path).directory)
    writer.write([encode(record) for record in [*records, *another(records, "late", OTHER, 100.0, 0.5)]])
    writer.close()
    return tmp_path


@pytest.fixture
def trace(kept, capsys):
    def run(*words: str, code: int = 0) -> str:
        assert main(["trace", *words, "--prefix", str(kept)]) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return run


@pytest.fixture
def podwire_process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command line as a process; it ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "podwire.cli.main", *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for daemon in started:
        with daemon:
            daemon.kill()


def test_the_last_pod_is_the_one_that_was_started_last(trace):
    assert trace("--last", "--color", "never").startswith("pod default/late: Running after 645.1 ms\n")


def test_the_slowest_comes_after_a_table_of_the_slowest(trace):
    lines = trace("--slow", "--color", "never").splitlines()
    assert lines[0].split()[:5] == ["POD", "RUNNING", "AFTER", "REQUEST", "SCHEDULING"]
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["default/late", "645.1", "ms"],
        ["default/web", "145.1", "ms"],
    ]
    assert lines[4] == "pod default/late: Running after 645.1 ms"
    short = trace("--slow", "--top", "1", "--brief", "--color", "never").splitlines()
    assert short[2] == ""


@pytest.mark.parametrize(
    "pod", ["web", "default/web", "c9eb463b88ba40318fa7d84ad8d7e145", "c9eb463b-88ba-4031-8fa7-d84ad8d7e145"]
)
def test_a_pod_is_found_by_its_name_or_its_uid(pod, trace):
    assert trace(pod, "--color", "never").startswith("pod default/web: Running after 145.1 ms\n")


def test_colours_are_for_terminals_unless_requested(trace):
    assert "\x1b[" not in trace("web")
    assert "\x1b[36m" in trace("web", "--color", "always")


def test_two_pods_are_compared(trace):
    output = trace("--diff", "web", "late")
    assert output.startswith("A  default/web  145.1 ms")
    assert "B is slowest in sandbox: +500.0 ms" in output
    data = json.loads(trace("--diff", "web", "late", "--format", "json"))
    [sandbox] = [phase for phase in data["phases"] if phase["name"] == "sandbox"]
    assert sandbox["slower"] == pytest.approx(0.5)


def test_the_list_has_phases_for_programs(trace):
    document = json.loads(trace("--format", "json"))
    assert [item["name"] for item in document] == ["web", "late"]
    assert sum(document[0]["phases"].values()) == pytest.approx(document[0]["took"])


def test_each_format_draws_the_same_pod(trace):
    assert trace("web", "--format", "mermaid").startswith("sequenceDiagram\n")
    assert trace("web", "-o", "html").startswith("<!DOCTYPE html>\n")
    assert len(json.loads(trace("web", "-o", "json"))) == len(life())


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["web", "--last"], "use only one of"),
        (["--slow", "--last"], "use only one of"),
        (["web", "--diff", "a", "b"], "use only one of"),
        (["web", "--check", "pod", "--follow"], "use only one of"),
        (["--otlp", "http://x"], "need a POD"),
        (["--check", "pod"], "need a POD"),
        (["web", "--follow", "--format", "html"], "--follow draws text"),
        (["web", "--check", "pod", "--format", "html"], "text or json"),
        (["--diff", "web", "late", "--format", "mermaid"], "text or json"),
        (["--format", "html"], "--format html draws one pod"),
        (["--diff", "web", "nobody"], "no pod default/nobody was recorded"),
        (["web", "--brief", "--format", "json"], "--brief is for diagrams"),
        (["no\x1bbody"], "no pod default/no\\x1bbody was recorded"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_conflicting_options_are_refused_in_one_line(words, error, trace):
    said = trace(*words, code=1)
    assert error in said
    assert said.count("\n") == 1


def test_nothing_was_slow_where_nothing_ran(tmp_path, capsys):
    CollectorOptions.below(tmp_path).directory.mkdir(parents=True)
    for words, message in ((["--slow"], "no recorded pod is Running yet"), (["--last"], "no pods recorded yet")):
        assert main(["trace", *words, "--prefix", str(tmp_path)]) == 1
        assert message in capsys.readouterr().err


def test_broken_files_are_named_and_the_rest_is_drawn(kept, capsys):
    directory = CollectorOptions.below(kept).directory
    (directory / "00000000.jsonl").write_bytes(b"hello\n")
    assert main(["trace", "web", "--prefix", str(kept)]) == 0
    captured = capsys.readouterr()
    assert "00000000.jsonl: an invalid line was skipped, first line 1" in captured.err
    assert captured.out.startswith("pod default/web")


@pytest.mark.parametrize("words", [[], ["web", "--follow"]], ids=["listed", "followed"])
def test_records_that_cannot_be_read_are_named(tmp_path, capsys, words):
    directory = CollectorOptions.below(tmp_path).directory
    directory.parent.mkdir(parents=True)
    directory.write_text("a file")
    assert main(["trace", *words, "--prefix", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"podwire trace: {directory}: Not a directory\n"


def test_follow_ends_when_the_records_are_removed(kept, podwire_process):
    directory = CollectorOptions.below(kept).directory
    process = podwire_process("trace", "web", "--follow", "--prefix", str(kept))
    assert process.stdout.readline() == "pod default/web\n"
    shutil.rmtree(directory)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (
        1,
        f"podwire trace: {directory} was removed\n",
    )


def test_a_number_of_rows_is_a_number(kept, capsys):
    with pytest.raises(SystemExit):
        main(["trace", "--slow", "--top", "0", "--prefix", str(kept)])
    assert "'0' is not a number of rows" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["collector:4317", "ftp://x"])
def test_up_refuses_an_invalid_collector_url(url, capsys):
    with pytest.raises(SystemExit):
        main(["up", "--otlp", url])
    assert "is not a collector URL; expected http://HOST[:PORT][/PATH]" in capsys.readouterr().err
