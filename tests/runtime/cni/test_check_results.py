"""Results of CHECK: what a finding means after the one before, and how results are stored and loaded."""

import json

import pytest

from podwire.durable.files import TEMPORARY
from podwire.protocols.cni.errors import CniError, Code
from podwire.runtime.cni.check_results import (
    CheckOutcome,
    CheckResult,
    CheckResults,
    is_finding,
    load_results,
    next_result,
)
from podwire.runtime.cni.plugins import PluginFailed, PluginMissing


def no(msg="there is no route", code=101, details=""):
    return PluginFailed("bridge", "CHECK", CniError(code, msg, details))


OK = CheckResult(state="ok", since=1.0)
ROUTE, LINK = next_result(no(), OK, 2.0), next_result(no("eth0 is not there"), OK, 3.0)


@pytest.mark.parametrize(
    ("before", "failure", "state", "since", "was_ok", "news"),
    [
        pytest.param(None, None, "ok", 9.0, False, False, id="well from the first"),
        pytest.param(None, no(), "failed", 9.0, False, True, id="never as it was made"),
        pytest.param(OK, None, "ok", 1.0, False, False, id="well as before"),
        pytest.param(OK, no(), "failed", 9.0, True, True, id="it fails"),
        pytest.param(ROUTE, no(), "failed", 2.0, True, False, id="it still fails"),
        pytest.param(LINK, no(), "failed", 9.0, True, True, id="it fails with something else"),
        pytest.param(ROUTE, None, "ok", 9.0, False, True, id="it is well again"),
        pytest.param(next_result(no("x"), None, 1.0), no(), "failed", 9.0, False, True, id="it was never well"),
    ],
)
def test_next_result(before, failure, state, since, was_ok, news):
    after = next_result(failure, before, 9.0)
    assert (after.state, after.since, after.was_ok) == (state, since, was_ok)
    assert CheckOutcome(before, after).changed == news


@pytest.mark.parametrize(
    ("failure", "word"),
    [
        pytest.param(no(), True, id="something is wrong"),
        pytest.param(no(code=Code.INTERNAL), True, id="what plugins of others say of everything"),
        pytest.param(no(code=Code.TRY_AGAIN_LATER), False, id="come again"),
        pytest.param(no(code=Code.INCOMPATIBLE_VERSION), False, id="it knows no CHECK"),
        pytest.param(PluginFailed("bridge", "CHECK", "was killed by signal 9"), False, id="it died"),
        pytest.param(PluginMissing("bridge", "CHECK", "there is no bridge"), False, id="it is not there"),
    ],
)
def test_only_an_error_of_the_plugin_is_a_finding(failure, word):
    assert is_finding(failure) == word


def test_results_survive_a_restart(tmp_path):
    checks = CheckResults(tmp_path / "checks")
    assert checks.get("a") is None
    checks.record("a", None, 100.0)
    checks.record("a", no(details="by 10.0.0.1"), 200.0)
    findings = checks.record("a", no(details="by 10.0.0.1"), 300.0)
    assert not findings.changed
    checks.record("b", None, 300.0)
    (found, at), _ = load_results(tmp_path / "checks").values()
    assert (found.state, found.since, found.was_ok, at) == ("failed", 200.0, True, 300.0)
    again = CheckResults(tmp_path / "checks")
    assert not again.record("a", no(details="by 10.0.0.1"), 400.0).changed
    again.keep_only(["b"])
    assert list(load_results(tmp_path / "checks")) == ["b"]
    again.remove("b")
    again.remove("b")
    assert list((tmp_path / "checks").iterdir()) == []


def test_temporary_files_of_a_killed_process_are_removed_at_the_next_start(tmp_path):
    CheckResults(tmp_path).record("a", None, 100.0)
    (tmp_path / f".a.json.x{TEMPORARY}").write_bytes(b"{")
    assert CheckResults(tmp_path).get("a") is not None
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_report_has_times_and_the_plugins_error(tmp_path):
    checks = CheckResults(tmp_path)
    checks.record("a", None, 0.5)
    assert json.loads(checks.get("a").report()) == {
        "state": "ok",
        "since": "1970-01-01T00:00:00.500000Z",
        "checkedAt": "1970-01-01T00:00:00.500000Z",
    }
    checks.record("a", no(details="by 10.0.0.1"), 60.0)
    assert json.loads(checks.get("a").report()) == {
        "state": "failed",
        "since": "1970-01-01T00:01:00.000000Z",
        "checkedAt": "1970-01-01T00:01:00.000000Z",
        "plugin": "bridge",
        "code": 101,
        "msg": "there is no route",
        "details": "by 10.0.0.1",
        "message": "CNI plugin bridge failed CHECK: code 101: there is no route (by 10.0.0.1)",
    }


def test_unreadable_and_unwritable_results_are_tolerated(tmp_path):
    (tmp_path / "a.json").write_text("half a li")
    (tmp_path / ".b.json").write_text("{}")
    assert load_results(tmp_path) == {}
    checks = CheckResults(tmp_path / "a.json/checks")  # below a file, where nothing can be made
    assert checks.record("c", no(), 1.0).changed
    assert checks.get("c").result.state == "failed"


def test_an_unchanged_result_only_updates_the_mtime(tmp_path):
    checks = CheckResults(tmp_path)
    checks.record("a", None, 1.0)
    inode = (tmp_path / "a.json").stat().st_ino
    checks.record("a", None, 2.0)
    assert ((tmp_path / "a.json").stat().st_ino, (tmp_path / "a.json").stat().st_mtime) == (inode, 2.0)
