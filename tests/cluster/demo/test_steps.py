"""Output of a demo about what it runs, and how it is stopped."""

import os
import signal

import pytest

from podwire.cluster.demo import demo_cluster
from podwire.cluster.demo.shell import Ran, Shell
from podwire.cluster.demo.signals import SignalGuard
from podwire.cluster.demo.step import Step
from podwire.cluster.demo.step_runner import worth_showing
from podwire.cluster.up.layout import LONGEST


def a_step(command: str = "kubectl get pods", **more) -> Step:
    return Step(name="look", sentence="Look.", command=command, **more)


def test_a_step_uses_variables_and_is_skipped_without_them():
    step = a_step("kubectl exec client -- ping -c 1 $ip6")
    assert not step.possible({"ip": "10.0.0.2"})
    assert step.possible({"ip6": "fd00::2"})
    assert step.typed({"ip6": "fd00::2"}) == "kubectl exec client -- ping -c 1 fd00::2"


@pytest.mark.parametrize(
    ("step", "code", "output", "kept"),
    [
        pytest.param(a_step(shows="Running"), 0, "web Running", True, id="as promised"),
        pytest.param(a_step(shows="Running"), 0, "web Pending", False, id="other words"),
        pytest.param(a_step(shows="Running"), 1, "web Running", False, id="it failed"),
        pytest.param(a_step(refused=True), 1, "no", True, id="refused as promised"),
        pytest.param(a_step(refused=True), 0, "yes", False, id="not refused"),
    ],
)
def test_a_promise_is_an_exit_code_and_words(step, code, output, kept):
    assert step.succeeded(code, output) is kept


@pytest.mark.parametrize(
    ("since", "count", "shown"),
    [
        pytest.param("", 9, ["a", "b", "c", "d"], id="all"),
        pytest.param("", 3, ["a", "b", "c", "… 1 more lines"], id="the first"),
        pytest.param("c", 9, ["… 2 lines before", "c", "d"], id="the last"),
        pytest.param("b", 1, ["… 1 lines before", "b", "… 2 more lines"], id="from the middle"),
        pytest.param("nowhere", 9, ["a", "b", "c", "d"], id="not found"),
    ],
)
def test_of_long_output_a_part_is_shown_and_the_rest_counted(since, count, shown):
    assert worth_showing("a\nb\nc\nd\n", since, count) == shown


def test_a_signal_is_felt_where_the_demo_waits_and_nowhere_else():
    with SignalGuard() as stops:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(SystemExit) as stopped, stops.waiting():
            pytest.fail("it was stopped before")
    assert (stopped.value.code, stops.code) == (143, 143)


def test_a_signal_ends_a_command_that_runs(tmp_path):
    with SignalGuard() as stops:
        shell = Shell(kubectl="kubectl", folder=tmp_path, kubeconfig=tmp_path / "kubeconfig", signals=stops)
        with pytest.raises(SystemExit):
            shell.run(f"sh -c 'kill -TERM {os.getpid()}; exec sleep 60'")


def test_a_missing_program_has_exit_code_127(tmp_path):
    shell = Shell(
        kubectl=str(tmp_path / "no"), folder=tmp_path, kubeconfig=tmp_path / "kubeconfig", signals=SignalGuard()
    )
    (tmp_path / "none").write_text("no program")
    (tmp_path / "none").chmod(0o755)
    assert shell.run("kubectl version") == Ran(127, f"{tmp_path}/no: No such file or directory")
    assert shell.run(f"{tmp_path}/none") == Ran(127, f"{tmp_path}/none: Exec format error")


def test_commands_know_nothing_of_the_visitors_own_cluster_and_proxies(tmp_path, monkeypatch):
    for name in ("KUBECONFIG", "KUBE_EDITOR", "http_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "something")
    shell = Shell(kubectl="kubectl", folder=tmp_path, kubeconfig=tmp_path / "mine", signals=SignalGuard(), columns=99)
    environment = dict(line.split("=", 1) for line in shell.run("env").output.splitlines())
    assert (environment["KUBECONFIG"], environment["HOME"], environment["COLUMNS"]) == (
        str(tmp_path / "mine"),
        str(tmp_path),
        "99",
    )
    assert not {"KUBE_EDITOR", "http_proxy", "HTTPS_PROXY"} & set(environment)


def test_where_temporary_things_lie_deep_the_cluster_goes_where_its_prefix_is_short(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_cluster.tempfile, "tempdir", str(tmp_path))
    with demo_cluster.temporary_layout(keep=False) as layout:
        assert len(os.fsencode(layout.prefix)) <= LONGEST
        assert (layout.prefix / "web.yaml").exists()
    assert not layout.prefix.exists()
