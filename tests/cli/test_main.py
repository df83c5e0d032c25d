"""The command line itself: what it tells, and what it answers to what it does not know."""

import argparse
import errno
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from podwire import __version__
from podwire.cli.main import COMMANDS, main, plain_text
from podwire.cli.options import go_seconds

HELP = """\
usage: podwire [-h] [--version] COMMAND ...

A small, complete Kubernetes, with one command per component.
"""

names = pytest.mark.parametrize("name", [command.name for command in COMMANDS])


def run_main(capsys, *given: str) -> tuple[int, str, str]:
    """Answers of a command line before it acts: exit code, output, errors."""
    try:
        code = main(given)
    except SystemExit as end:
        code = end.code
    return code, *capsys.readouterr()


def test_help_lists_every_command_exit_codes_and_examples(capsys):
    code, out, err = run_main(capsys, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(HELP)
    for command in COMMANDS:
        assert re.search(rf"^  {command.name} +{re.escape(command.summary)}$", out, re.MULTILINE)
    assert "exit codes: 0 ok, 1 failed, 2 usage" in out
    assert "podwire demo" in out.partition("try:")[2]
    assert max(map(len, out.splitlines())) <= 80


def test_without_a_command_help_is_shown_as_a_usage_error(capsys):
    code, out, _ = run_main(capsys)
    assert code == 2
    assert out.startswith(HELP)


def test_the_version_is_printed(capsys):
    assert run_main(capsys, "--version") == (0, f"podwire {__version__}\n", "")


def test_an_unknown_command_is_a_usage_error_with_the_known_ones(capsys):
    code, out, err = run_main(capsys, "dmeo")
    assert (code, out) == (2, "")
    assert "'dmeo'" in err
    assert all(command.name in err for command in COMMANDS)


@names
def test_every_command_has_help_with_its_summary(capsys, name):
    [command] = [command for command in COMMANDS if command.name == name]
    code, out, err = run_main(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: podwire {name} ")
    assert command.summary in " ".join(out.split())


@pytest.mark.parametrize("name", [command.name for command in COMMANDS if not command.passes_on])
def test_an_unknown_option_is_a_usage_error(capsys, name):
    code, out, err = run_main(capsys, name, "--no-such-flag")
    assert (code, out) == (2, "")
    assert "--no-such-flag" in err or "required" in err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(("apiserver", "--listen", "localhost:6443"), "is not ADDRESS:PORT", id="a host name to listen on"),
        pytest.param(("apiserver", "--listen", "127.0.0.1:70000"), "is not ADDRESS:PORT", id="a port that is too high"),
        pytest.param(("apiserver", "--listen", "127.0.0.1"), "is not ADDRESS:PORT", id="no port"),
        pytest.param(("apiserver", "--service-cluster-ip-range", "10.96.0.1/16"), "10.96.0.1/16", id="host bits set"),
        pytest.param(
            ("apiserver", "--service-cluster-ip-range", "10.96.0.0/16,10.97.0.0/16"),
            "must be of different IP family",
            id="two ranges of one family",
        ),
        pytest.param(
            ("apiserver", "--service-cluster-ip-range", "10.96.0.0/16,fd00::/112,fd01::/112"),
            "must not contain more than two entries",
            id="three ranges",
        ),
        pytest.param(("apiserver", "--token-auth-file", "/no/file"), "/no/file: No such file", id="a missing file"),
        pytest.param(("apiserver", "--log-level", "loud"), "invalid choice: 'loud'", id="an unknown level"),
        pytest.param(("demo", "-o", "yaml"), "invalid choice: 'yaml'", id="an unknown form"),
        pytest.param(("failpoints", "more"), "unrecognized arguments: more", id="one argument too many"),
    ],
)
def test_an_invalid_value_is_a_usage_error_and_is_named(capsys, given, words):
    code, out, err = run_main(capsys, *given)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--enable-admission-plugins", "Nonsense", 'enable-admission-plugins plugin "Nonsense" is unknown'),
        ("--disable-admission-plugins", "X", 'disable-admission-plugins plugin "X" is unknown'),
        ("--admission-control-config-file", "/no/file", "/no/file: No such file"),
    ],
)
def test_wrong_settings_of_admission_are_named(capsys, flag, value, words):
    code, _out, err = run_main(capsys, "apiserver", flag, value)
    assert code == 1
    assert words in err
    assert len(err.splitlines()) == 1


def test_user_errors_are_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, out, err = run_main(capsys, "apiserver", "--data-dir", str(tmp_path / "file"), "--listen", "127.0.0.1:0")
    assert (code, out) == (1, "")
    assert err.startswith("podwire apiserver: ")
    assert err.count("\n") == 1


def test_a_store_of_an_unknown_kind_is_named(capsys, tmp_path):
    given = ("apiserver", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--store", "mysql://db")
    code, _, err = run_main(capsys, *given)
    assert code == 1
    assert "mysql" in err


def test_an_address_in_use_is_reported(capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run_main(
            capsys, "apiserver", "--data-dir", str(tmp_path), "--store", "memory://", "--listen", f"127.0.0.1:{port}"
        )
    assert code == 1
    assert "in use" in err


def said_to(stdout: int, *given: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command as a process of its own, whose output goes there."""
    command = [sys.executable, "-m", "podwire.cli.main", *given]
    return subprocess.run(
        command,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environ},
    )


LISTING = ("trace", "--prefix")


@pytest.fixture
def listed(tmp_path) -> Path:
    """Below it is nothing to list: that is one line of output."""
    (tmp_path / "var/lib/podwire/trace").mkdir(parents=True)
    return tmp_path


buffered = pytest.mark.parametrize("unbuffered", [pytest.param("", id="buffered"), pytest.param("1", id="at once")])


@buffered
def test_a_closed_output_pipe_ends_the_command_quietly(unbuffered, listed):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        done = said_to(nobody.fileno(), *LISTING, str(listed), PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@buffered
def test_output_to_a_full_disk_is_reported_in_one_line(unbuffered, listed):
    with Path("/dev/full").open("wb") as full:
        done = said_to(full.fileno(), *LISTING, str(listed), PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (1, "podwire: standard output: No space left on device\n")


def test_an_error_that_is_not_the_output_s_is_not_taken_for_it(capfd, monkeypatch):
    def broken(_: object) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("podwire.cli.failpoints.run", broken)
    assert run_main(capfd, "failpoints") == (1, "", "podwire: Broken pipe\n")


@pytest.mark.parametrize("moment", ["configure", "run"])
def test_an_interrupted_command_prints_no_traceback(monkeypatch, moment):
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"podwire.cli.failpoints.{moment}", interrupted)
    assert main(["failpoints"]) == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("given", "usage", "words"),
    [
        (("upp",), "usage: podwire [-h]", "unknown command 'upp'; did you mean `up`?"),
        (("up", "--detatch"), "usage: podwire up ", "unrecognized arguments: --detatch; did you mean `--detach`?"),
        (("up", "--node", "2"), "usage: podwire up ", "unrecognized arguments: --node 2; did you mean `--nodes`?"),
        (("cni", "lst"), "usage: podwire cni ", "unknown verb 'lst'; did you mean `list`?"),
        (("image", "list", "--perfix=/"), "usage: podwire image list ", "did you mean `--prefix`?"),
        (("nri", "logger", "--no-such"), "usage: podwire nri logger ", "unrecognized arguments: --no-such"),
        (("status", "-o", "jsn"), "usage: podwire status ", "did you mean `json`?"),
    ],
)
def test_a_mistyped_word_gets_the_usage_of_its_command_and_a_suggestion(capsys, given, usage, words):
    code, out, err = run_main(capsys, *given)
    assert (code, out) == (2, "")
    assert err.startswith(usage)
    assert words in err


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("[Errno 13] Permission denied: '/x y'", "/x y: Permission denied"),
        ("--hardware: [Errno 2] No such file or directory: '/x'", "--hardware: /x: No such file or directory"),
        ("/x: [Errno 2] No such file or directory: '/x'", "/x: No such file or directory"),
        ("[Errno 32] Broken pipe", "Broken pipe"),
        ("no number here: '/x'", "no number here: '/x'"),
    ],
)
def test_errors_of_the_system_are_shown_without_their_numbers(message, plain):
    assert plain_text(message) == plain


def test_the_words_of_kubectl_are_passed_on(monkeypatch):
    given = []
    monkeypatch.setattr("podwire.cli.kubectl.run", lambda arguments: given.append(arguments) or 0)
    assert main(["kubectl", "--prefix=/srv/pw", "-n", "kube-system", "get", "pods", "--prefix", "x"]) == 0
    assert given[0].prefix == Path("/srv/pw")
    assert given[0].words == ["-n", "kube-system", "get", "pods", "--prefix", "x"]


def test_a_missing_package_is_named_with_the_command_that_helps(capsys, monkeypatch):
    def missing(_: object) -> int:
        raise ModuleNotFoundError("No module named 'grpc'", name="grpc")

    monkeypatch.setattr("podwire.cli.failpoints.run", missing)
    code, _, err = run_main(capsys, "failpoints")
    assert code == 1
    assert "the Python package 'grpc' is not installed" in err
    assert "scripts/setup" in err


INTERRUPTED = """
import builtins, os, signal, sys
find, module = builtins.__import__, sys.argv[1]
def interrupt(name, *rest, **more):
    if name == module:
        os.kill(os.getpid(), signal.SIGINT)
    return find(name, *rest, **more)
builtins.__import__ = interrupt
from podwire.cli.entry import main
sys.argv[1:] = ["status"]
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["podwire.cli.main", "podwire.cluster.up.layout"])
def test_an_interrupt_while_modules_are_imported_prints_no_traceback(module):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, module], capture_output=True, text=True, check=False)
    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "expected"), [("2", 2), ("0.5", 0.5), ("10s", 10), ("1m30s", 90), ("1h", 3600), ("1.5s", 1.5)]
)
def test_durations_of_go_are_seconds(text, expected):
    assert go_seconds(text) == expected


@pytest.mark.parametrize("text", ["", "s", "10x", "-1s", "1s1m", "nan", "inf"])
def test_text_that_is_not_a_duration_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number of seconds"):
        go_seconds(text)
