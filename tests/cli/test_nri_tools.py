"""The tools of NRI as commands."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.eventually import eventually

PODWIRE = (sys.executable, "-m", "podwire.cli.main")
SOON = 60.0


def podwire(*words, cwd=None):
    return subprocess.run(
        [*PODWIRE, *map(str, words)], capture_output=True, text=True, timeout=SOON, cwd=cwd, check=False
    )


def fake(script="", *flags):
    return [*PODWIRE, "nri", "fake-plugin", *map(str, filter(None, [script])), *map(str, flags)]


@pytest.fixture
def life(tmp_path):
    """The life of a pod, reported by a runtime that has time."""
    path = tmp_path / "life.yaml"
    path.write_text("runtime: {registration_timeout: 60s, request_timeout: 50s, synchronize_timeout: 60s}")
    return path


def test_play_prints_replies_and_its_exit_code_is_the_result(tmp_path):
    script = tmp_path / "script.yaml"
    slow = "runtime: {registration_timeout: 60s, request_timeout: 60s, synchronize_timeout: 60s}"
    script.write_text(f"steps: [{{run: web, expect: {{calls: [RunPodSandbox]}}}}]\n{slow}")
    done = podwire("nri", "play", script, "--", *fake("", "--quiet"))
    assert done.returncode == 0, done.stderr
    assert "50-fake: 2 steps, 4 calls, all as expected" in done.stdout
    script.write_text(f"steps: [{{run: web, expect: {{calls: []}}}}]\n{slow}")
    done = podwire("nri", "play", "--format", "json", script, "--", *fake("", "--quiet"))
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["failures"] == [f"{script}:1: run web: calls: none are expected, got RunPodSandbox"]
    done = podwire("nri", "play", script, "--format", "junit", "--", *fake("", "--quiet", "--socket", "{socket}"))
    assert done.returncode == 1
    assert '<testsuite name="' in done.stdout


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        ("step: []", ["--", "true"], "script.yaml:1: step: is unknown"),
        ("", [], "no plugin given: add `-- PROGRAM`"),
    ],
)
def test_play_refuses_an_invalid_script(tmp_path, text, words, says):
    (tmp_path / "script.yaml").write_text(text)
    done = podwire("nri", "play", "script.yaml", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr


def test_a_fake_plugin_reports_a_bad_script_or_socket(tmp_path):
    (tmp_path / "script.yaml").write_text("nam: x")
    done = podwire("nri", "fake-plugin", "script.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr.startswith("podwire nri fake-plugin: script.yaml:1: nam")) == (2, True)
    done = podwire("nri", "fake-plugin", "--socket", "nobody.sock", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_a_fake_plugin_records_its_messages(tmp_path, life):
    record = tmp_path / "record"
    done = podwire("nri", "play", life, "--", *fake("", "--quiet", "--record", record))
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in record.read_text().splitlines()]
    assert [record.get("call") or record["event"] for record in records][:5] == [
        "registers",
        "registered",
        "Configure",
        "Synchronize",
        "synchronized",
    ]
    [ran] = [record for record in records if record.get("call") == "RunPodSandbox"]
    assert (ran["pod"], ran["did"], ran["request"]["pod"]["namespace"]) == ("web", "answer", "default")


def test_the_proxy_prints_a_timeline_and_a_summary(tmp_path, life):
    output = tmp_path / "timeline"
    between = [*PODWIRE, "nri", "proxy", "--listen", tmp_path / "p.sock", "--connect", "{socket}", "--output", output]
    done = podwire("nri", "play", life, "--", *between, "--format", "json", "--", *fake("", "--quiet"))
    assert done.returncode == 0, done.stderr
    *messages, last = map(json.loads, output.read_text().splitlines())
    calls = [message for message in messages if "method" in message]
    assert [call["method"] for call in calls][:4] == ["RegisterPlugin", "Configure", "Synchronize", "RunPodSandbox"]
    assert calls[3]["budget"] == 50.0
    assert {"50-fake"} == {item["plugin"] for item in last["summary"]}


@pytest.mark.parametrize(("words", "shown"), [((), False), (("--show-secrets",), True)])
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_proxy_hides_values_of_variables_unless_an_option_shows_them(tmp_path, life, form, words, shown):
    output, script = tmp_path / "timeline", tmp_path / "script.yaml"
    script.write_text("on: {CreateContainer: {answer: {adjust: {env: {PASSWORD: c4n4ry}}}}}")
    between = [*PODWIRE, "nri", "proxy", "--listen", tmp_path / "p.sock", "--connect", "{socket}", "--output", output]
    done = podwire(
        "nri", "play", life, "--", *between, "--format", form, *words, "--", *fake(script, "--quiet"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = output.read_text()
    assert "PASSWORD" in text
    assert ("c4n4ry" in text) is shown


def test_a_proxy_as_a_pre_installed_plugin(tmp_path, life):
    output = tmp_path / "timeline"
    between = [*PODWIRE, "nri", "proxy", "--output", output, "--"]
    done = podwire("nri", "play", "--launch", "07-hidden", life, "--", *between, *fake("", "--quiet"))
    assert done.returncode == 0, done.stderr
    assert "07-hidden: 8 steps" in done.stdout
    assert "RunPodSandbox" in output.read_text()


def test_a_proxy_ends_when_it_is_asked_to_and_sums_up(tmp_path):
    listen = tmp_path / "p.sock"
    argv = [*PODWIRE, "nri", "proxy", "--listen", listen, "--connect", tmp_path / "nobody.sock"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            eventually(listen.exists, SOON)
            done = podwire("nri", "fake-plugin", "--socket", listen)
            assert done.returncode == 0, done.stderr
            os.kill(process.pid, signal.SIGTERM)
            output, _ = process.communicate(timeout=SOON)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    assert process.returncode == 0
    assert "the runtime does not listen" in output
    assert "PLUGIN  CALL" in output
    assert not listen.exists()
