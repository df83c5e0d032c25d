"""The program of every CNI plugin, with a daemon of the test's own: the compiled one, and the same with sanitizers."""

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from podwire.cniplugins.daemon import wire
from podwire.shim import find_forwarder

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "shim" / "podwire-cni.c"
SANITIZED = (
    "-std=c11",
    "-O1",
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-Wall",
    "-Wextra",
    "-Werror",
)
INSTEAD = 'printf "instead of %s: " "$0"; cat; exit 7'
"""The program that the note names for calls without a daemon, which is handed the plugin's name."""
ADD = {"CNI_COMMAND": "ADD"}
Answer = Callable[[socket.socket, wire.Request, list[int]], None]


@pytest.fixture(scope="session")
def compile_source(tmp_path_factory) -> Callable[[str, tuple[str, ...]], Path]:
    def compiled(name: str, flags: tuple[str, ...]) -> Path:
        program = tmp_path_factory.mktemp("forwarder") / name
        subprocess.run(["gcc", *flags, "-o", program, SOURCE], check=True)
        return program

    return compiled


@pytest.fixture(scope="session", params=["c", "sanitized"])
def forwarder(request, compile_source, build_hook) -> Path:
    return compile_source(request.param, build_hook.FLAGS if request.param == "c" else SANITIZED)


@pytest.fixture
def program(forwarder, tmp_path) -> Path:
    """As it is installed."""
    plugin = tmp_path / "bridge"
    shutil.copy(forwarder, plugin)
    note(tmp_path, f"socket {tmp_path}/s", "run /bin/sh", "run -c", f"run {INSTEAD}")
    return plugin


def note(directory: Path, *lines: str) -> None:
    (directory / ".podwire-cni").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def run(program, environment):
    """Its exit code, what it printed, and what it wrote to standard error."""

    def call(env: dict[str, str], stdin: bytes = b"", **options) -> tuple[int, bytes, bytes]:
        done = subprocess.run(
            [program], input=stdin, env=environment | env, capture_output=True, timeout=60, check=False, **options
        )
        return done.returncode, done.stdout, done.stderr

    return call


def received(connection: socket.socket) -> tuple[wire.Request, list[int]]:
    head, files, _, _ = socket.recv_fds(connection, wire.CALL.size, wire.DESCRIPTORS)
    sizes = wire.lengths(head)
    body = b""
    while len(body) < sum(sizes):
        body += connection.recv(1 << 20)
    return wire.request(sizes, body), files


@pytest.fixture
def daemon(tmp_path):
    """Listens, and gives one call a configured answer."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    listener.settimeout(60)
    threads: list[threading.Thread] = []

    def serve(answer: Answer, receive=received) -> None:
        def work() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    answer(connection, *receive(connection))

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield serve
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()
    listener.close()


def test_a_call_is_handed_over_whole_and_the_answer_is_passed_on(run, daemon, tmp_path):
    heard = []

    def answer(connection, request, files):
        heard.append((request, [os.fstat(file) for file in files]))
        for file in files:
            os.close(file)
        connection.sendall(wire.BEGUN + wire.answer(3, b'{"a": 1}\n', b"beware\n"))

    daemon(answer)
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    stdin = os.urandom(1 << 20)
    assert run(ADD | {"EMPTY": "", "WORDS": "a=b c\nd"}, stdin, cwd=cwd) == (3, b'{"a": 1}\n', b"beware\n")
    [(request, places)] = heard
    assert (request.name, request.stdin) == ("bridge", stdin)
    assert ADD.items() <= request.environ.items()
    assert (request.environ["EMPTY"], request.environ["WORDS"]) == ("", "a=b c\nd")
    wanted = [Path(name).stat() for name in ("/proc/self/ns/net", "/proc/self/ns/mnt", "/", cwd)]
    assert [path.st_ino for path in places] == [item.st_ino for item in wanted]


@pytest.mark.parametrize("env", [{"CNI_COMMAND": "VERSION"}, {}], ids=["VERSION", "no command"])
def test_standard_input_is_not_read_when_no_call_needs_it(program, daemon, environment, env):
    daemon(
        lambda connection, request, _: connection.sendall(wire.BEGUN + wire.answer(0, b"%d" % len(request.stdin), b""))
    )
    with subprocess.Popen(
        [program], env=environment | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout.read() == b"0"


@pytest.mark.parametrize("there", ["no socket", "a dead socket", "a file", "an endless path"])
def test_without_a_daemon_the_program_of_the_note_does_it(run, tmp_path, there):
    if there == "a dead socket":
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(str(tmp_path / "s"))
    elif there == "a file":
        (tmp_path / "s").touch()
    elif there == "an endless path":
        note(tmp_path, f"socket /{'x' * 200}", "run /bin/sh", "run -c", f"run {INSTEAD}")
    stdin = b"config" * 50_000
    assert run(ADD, stdin) == (7, b"instead of bridge: " + stdin, b"")


def test_a_call_that_is_declined_is_done_by_the_program_of_the_note(run, daemon):
    daemon(lambda connection, *_: connection.sendall(wire.DECLINED))
    assert run(ADD, b"config") == (7, b"instead of bridge: config", b"")


@pytest.mark.parametrize("said", [b"", b"x"], ids=["nothing", "something else"])
def test_a_call_the_daemon_did_not_begin_runs_the_fallback_program(run, daemon, said):
    daemon(lambda connection, *_: connection.sendall(said))
    assert run(ADD, b"config") == (7, b"instead of bridge: config", b"")


def test_a_call_that_was_not_taken_whole_is_done_by_the_program_of_the_note(run, daemon):
    daemon(lambda *_: None, receive=lambda connection: (connection.recv(10), []))
    stdin = os.urandom(4 << 20)
    assert run(ADD, stdin) == (7, b"instead of bridge: " + stdin, b"")


def test_a_server_of_another_user_is_not_asked(run, program, tmp_path):
    tmp_path.chmod(0o777)
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(1, flush=True); "
    )
    code += "c, _ = s.accept(); print(c.recv(1), flush=True)"
    words = ["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-Ic", code, "s"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE) as server:
        assert server.stdout.readline() == b"1\n"
        assert run(ADD, b"config") == (7, b"instead of bridge: config", b"")
        assert server.stdout.readline() == b"b''\n", "the call was not sent"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"x",
        b"garbage, and more than a head",
        wire.ANSWER.pack(0, 10, 0) + b"half",
        wire.ANSWER.pack(0, 1 << 31, 0),
    ],
    ids=["nothing", "a byte", "garbage", "half an answer", "endless lengths"],
)
def test_an_unknown_outcome_is_try_again_later(run, daemon, said, tmp_path):
    daemon(lambda connection, *_: connection.sendall(wire.BEGUN + said))
    code, stdout, stderr = run(ADD, b"config")
    document = json.loads(stdout)
    assert (code, document["code"], stderr) == (1, 11, b"")
    assert str(tmp_path / "s") in document["msg"]


@pytest.mark.parametrize(
    "lines",
    [None, [], ["run /bin/sh"], ["words"]],
    ids=["none", "empty", "no socket", "other"],
)
def test_a_missing_or_short_note_is_reported(run, tmp_path, lines):
    (tmp_path / ".podwire-cni").unlink()
    if lines is not None:
        note(tmp_path, *lines)
    code, stdout, _ = run(ADD)
    document = json.loads(stdout)
    assert (code, document["code"]) == (1, 5)
    assert "podwire cni install" in document["msg"]


def test_a_missing_fallback_program_is_reported(run, tmp_path):
    note(tmp_path, "socket /nowhere", 'run /no"such\\program')
    code, stdout, _ = run(ADD)
    assert (code, json.loads(stdout)["code"]) == (1, 999)
    assert "No such file" in json.loads(stdout)["msg"]


def test_endless_words_in_the_note_are_survived(run, tmp_path):
    note(tmp_path, "socket /nowhere", f"run /{'x' * 16_000}")
    code, stdout, _ = run(ADD)
    assert (code, json.loads(stdout)["code"]) == (1, 999)


def test_more_input_than_any_configuration_has_is_refused(run):
    code, stdout, _ = run(ADD, bytes((16 << 20) + 1))
    assert (code, json.loads(stdout)["code"]) == (1, 5)


@pytest.mark.parametrize("closed", ["0", "1", "2", "0 1 2"])
def test_closed_standard_files_are_survived(program, daemon, environment, closed, reports):
    daemon(lambda connection, *_: connection.sendall(wire.BEGUN + wire.answer(4, b"out", b"err")))
    closing = " ".join(f"{part}>&-" for part in closed.split())
    done = subprocess.run(["/bin/sh", "-c", f'exec "$0" {closing}', program], env=environment | ADD, check=False)
    assert done.returncode == 4


def test_the_plugin_type_is_the_name_of_the_program_not_of_its_link(program, daemon, environment, tmp_path):
    daemon(lambda connection, request, _: connection.sendall(wire.BEGUN + wire.answer(0, request.name.encode(), b"")))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "other").symlink_to(program)
    done = subprocess.run([elsewhere / "other"], env=environment | ADD, input=b"", capture_output=True, check=True)
    assert done.stdout == b"bridge"


def test_the_installed_forwarder_is_built_from_this_source(compile_source, build_hook):
    """`scripts/setup` compiles anew when the source changes."""
    found = find_forwarder()
    assert found is not None
    assert found.read_bytes() == compile_source("podwire-cni", build_hook.FLAGS).read_bytes()


def test_the_program_is_small_enough_to_be_read():
    lines = SOURCE.read_text().splitlines()
    assert len(lines) <= 360
    assert max(map(len, lines)) <= 120
