"""The demo, as a newcomer sees it: a whole cluster, five flows with real pods, their ways drawn, and nothing left of it
afterwards."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwire.cluster import runtime
from podwire.cluster.demo.acts import acts
from podwire.cluster.demo.acts.act import WAITS, DemoContext
from podwire.cluster.demo.play import first_steps, last_steps
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.slot_claims import SlotClaims
from tests.eventually import eventually

PODWIRE = str(Path(sys.executable).with_name("podwire"))
KUBECTL = shutil.which("kubectl") or str(Path(sys.prefix) / "debian/usr/bin/kubectl")
OLD = Path(sys.prefix) / "debian/usr/bin/kubectl"
SOON = 150.0


def minor_version() -> int:
    done = subprocess.run([KUBECTL, "version", "--client", "-o", "json"], capture_output=True, check=True)
    return int(json.loads(done.stdout)["clientVersion"]["minor"].rstrip("+"))


needs_new = pytest.mark.skipif(minor_version() < WAITS, reason="this kubectl is too old to wait for any field")


class Visitor:
    """Somebody at a machine with a network of its own, which has nothing but a loopback interface."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._machine = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "-n", "sh", "-c", "ip link set lo up && echo up && read _"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._machine.stdout is not None
        assert self._machine.stdout.readline() == b"up\n"
        self._before = self._network()

    def types(self, *words: str, **environment: str) -> "subprocess.Popen[str]":
        env = {**os.environ, "TMPDIR": str(self.folder), **environment}
        return subprocess.Popen(
            ["nsenter", "-t", str(self._machine.pid), "-n", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )

    def reads(self, *words: str, **environment: str) -> tuple[int, str]:
        with self.types(*words, **environment) as process:
            output, _ = process.communicate(timeout=SOON)
        return process.returncode, output

    def leaves(self) -> None:
        self._machine.communicate(b"\n", timeout=SOON)

    def _network(self) -> list[str]:
        looks = ("ip -o link", "ip -o addr", "ip route", "ip -6 route", "nft list ruleset")
        files = ("cat /proc/sys/net/ipv4/ip_forward", "cat /proc/sys/net/ipv6/conf/all/forwarding")
        return [self.reads("sh", "-c", look)[1] for look in (*looks, *files)]

    def finds_nothing(self, output: str) -> None:
        """No link, address, route or rule; no process, mount, cgroup, slot or file of the demo that wrote this."""
        assert self._network() == self._before
        [prefix] = set(re.findall(rf"{self.folder}/pwdemo-\w+", output))
        options = runtime.Options(socket=Path(prefix) / "cri.sock", prefix=Path(prefix))
        assert SlotClaims().of(Path(prefix)) == []
        assert prefix not in Path("/proc/self/mountinfo").read_text()
        assert not [at for at, below, _ in os.walk("/sys/fs/cgroup") if options.cgroup_parent in below]
        assert processes_of(prefix) == []
        assert list(self.folder.iterdir()) == []


def processes_of(prefix: str) -> list[str]:
    """Command lines of the processes that name a prefix."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended
            continue
        if prefix in words:
            found.append(words)
    return found


@pytest.fixture
def visitor() -> Iterator[Visitor]:
    folder = Path(tempfile.mkdtemp(prefix="pwd-", dir="/tmp"))
    visitor = Visitor(folder)
    try:
        yield visitor
    finally:
        for path in folder.iterdir():
            visitor.reads(PODWIRE, "down", "--prefix", str(path))
        visitor.leaves()
        shutil.rmtree(folder)


@needs_new
def test_every_step_of_the_demo_is_shown_and_nothing_is_left(visitor):
    code, output = visitor.reads(PODWIRE, "demo", COLUMNS="140")
    assert code == 0, output
    context = DemoContext(layout=Layout(Path("/nowhere")), minor=WAITS, registry=True)
    played = acts(context)
    steps = [*first_steps(context), *(step for act in played for step in act.steps), *last_steps(context)]
    for number, step in enumerate(steps, 1):
        assert f"{number:2}  {step.sentence}\n" in output
    for act in played:
        assert f"Act {act.number}: {act.title}\n{act.sentence}\n" in output
        assert f"pod default/{act.pod}: no deviations from the {act.flow} flow" in output
    assert [act.number for act in played] == [1, 2, 3, 4, 5]
    assert "hello from web, which came from a registry" in output  # by the hostPort
    assert "Successfully pulled image" in output
    for arrow in ("kubectl apply", "RunPodSandbox", "ADD bridge", "CreateContainer web", "crun run"):
        assert f"│ {arrow}" in output
    assert re.search(r"^POST to Running( +\d+\.\d ms){5}$", output, re.MULTILINE)
    assert re.search(r"^\d+ steps in [0-9.]+ s; all processes used \d+ MB of memory\.$", output, re.MULTILINE)
    assert "Traceback" not in output
    visitor.finds_nothing(output)


@needs_new
def test_one_act_alone_is_played_with_its_diagram_as_mermaid(visitor):
    code, output = visitor.reads(PODWIRE, "demo", "--act", "2", "--format", "mermaid")
    assert code == 0, output
    assert "Act 2: " in output
    assert "Act 1: " not in output
    assert "sequenceDiagram" in output
    assert "CNIPlugin->>IPAM" in output.replace("+", "")
    visitor.finds_nothing(output)


@pytest.mark.skipif(not OLD.exists(), reason="needs the old kubectl that set-up unpacks")
def test_with_an_old_kubectl_it_is_played_as_far_as_that_one_can(visitor, tmp_path):
    (tmp_path / "kubectl").symlink_to(OLD)
    code, output = visitor.reads(PODWIRE, "demo", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert code == 0, output
    assert output.count(": no deviations from the") == 4
    assert "pod default/web: 1 deviations from the pod flow" in output  # what was typed
    visitor.finds_nothing(output)


@needs_new
def test_with_keep_the_cluster_stays_and_the_next_commands_work(visitor):
    code, output = visitor.reads(PODWIRE, "demo", "--act", "1", "--keep", "-o", "json")
    assert code == 0, output
    document = json.loads(output)
    assert document["ok"] is True
    assert {step["exitCode"] for step in document["steps"]} == {0}
    assert all(step["milliseconds"] > 0 and step["command"] for step in document["steps"])
    assert {step["name"] for step in document["steps"] if not step["output"]} <= {"build"}  # it writes a file
    assert document["memoryBytes"] > 1e7
    path = f"{Path(PODWIRE).parent}:{Path(KUBECTL).parent}:{os.environ['PATH']}"
    for command in (*document["next"], document["remove"]):
        code, said = visitor.reads("sh", "-c", command, PATH=path)
        assert code == 0, f"{command}: {said}"
    visitor.finds_nothing(output)


def hanging_at(folder: Path, words: str) -> tuple[Path, dict[str, str]]:
    """A kubectl that hangs at a command with these words; the file that is there when it does, and the way to it."""
    reached, program = folder / "reached", folder / "kubectl"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *"{words}"*) touch {reached}; exec sleep 60;; esac\nexec {KUBECTL} "$@"\n'
    )
    program.chmod(0o755)
    return reached, {"PATH": f"{folder}:{os.environ['PATH']}"}


def wait_for(directory: Path, pattern: str, demo: "subprocess.Popen[str]") -> None:
    """Waits until a file exists; fails at once when the demo ended before."""
    eventually(lambda: demo.poll() is not None or list(directory.glob(pattern)), SOON, interval=0.002)
    assert demo.poll() is None, demo.communicate()


@pytest.mark.parametrize(
    ("at", "number", "code"),
    [
        pytest.param("get nodes", signal.SIGTERM, 143, id="before the first pod"),
        pytest.param("pod/client", signal.SIGINT, 130, id="while a pod starts"),
        pytest.param("delete", signal.SIGHUP, 129, id="with two pods running"),
        pytest.param("pod/router", signal.SIGTERM, 143, id="with plugins running"),
    ],
)
def test_interrupted_at_a_step_it_leaves_nothing(visitor, tmp_path, at, number, code):
    reached, environment = hanging_at(tmp_path, at)
    with visitor.types(PODWIRE, "demo", **environment) as demo:
        wait_for(reached.parent, reached.name, demo)
        demo.send_signal(number)
        output, _ = demo.communicate(timeout=SOON)
    assert demo.returncode == code, output
    visitor.finds_nothing(output)


@pytest.mark.parametrize("there", ["up.json", "trace", "kubeconfig", "nodes"])
def test_interrupted_while_the_cluster_comes_up_it_leaves_nothing(visitor, there):
    """Impatiently: the signal comes twice."""
    folder = {"nodes": "run/podwire/nodes"}.get(there, f"var/lib/podwire/{there}")
    with visitor.types(PODWIRE, "demo") as demo:
        wait_for(visitor.folder, f"pwdemo-*/{folder}", demo)
        demo.send_signal(signal.SIGINT)
        demo.send_signal(signal.SIGTERM)
        output, _ = demo.communicate(timeout=SOON)
    assert demo.returncode in {130, 143}, output
    assert "Traceback" not in output
    visitor.finds_nothing(output)


def test_a_failed_step_ends_the_demo_with_its_output(visitor, tmp_path):
    (tmp_path / "kubectl").write_text(
        f'#!/bin/sh\ncase "$*" in *wait*) echo it is late; exit 1;; esac\nexec {KUBECTL} "$@"\n'
    )
    (tmp_path / "kubectl").chmod(0o755)
    code, output = visitor.reads(PODWIRE, "demo", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert code == 1
    assert "it is late" in output
    assert "the step 'web runs' did not show what was expected" in output
    assert "kubelet: " in output  # the end of its log
    visitor.finds_nothing(output)
