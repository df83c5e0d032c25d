"""The tour of the API server, as a visitor runs it: real processes, and nothing of them afterwards."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import eventually

PODWIRE = str(Path(sys.executable).with_name("podwire"))
UNPACKED = Path(sys.prefix) / "debian" / "usr" / "bin" / "kubectl"


@pytest.fixture
def place(tmp_path):
    """Where the demo may put things; it is empty again afterwards, and no process works in it."""
    place = tmp_path / "tmp"
    place.mkdir()
    yield place
    assert list(place.iterdir()) == []
    assert working_in(place) == []


def working_in(place: Path) -> list[str]:
    """Command lines of the processes that name this path."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended
            continue
        if str(place) in words:
            found.append(words)
    return found


def environment(place: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(place), **more}


def test_the_tour_is_played_to_its_end(place):
    done = subprocess.run([PODWIRE, "demo", "api"], capture_output=True, text=True, env=environment(place), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        "$ kubectl apply -f pod.yaml",
        "Pending",
        "front",  # the watch saw the label
        "spec.capacity: Invalid value: -3",
        'unknown field "spec.containers[0].prots"',
        'namespace "shop" deleted',
        "kubernetes-admin",
        "Next:  podwire demo --keep",
    ):
        assert words in re.sub(r"\n +", " ", done.stdout) + done.stdout
    assert re.search(r"^18 steps in [0-9.]+ s; all processes used \d+ MB of memory\.$", done.stdout, re.MULTILINE)


def test_json_has_every_step_with_exit_code_and_duration(place):
    done = subprocess.run(
        [PODWIRE, "demo", "api", "-o", "json"], capture_output=True, env=environment(place), check=True
    )
    document = json.loads(done.stdout)
    assert document["ok"] is True
    codes = {step["name"]: step["exitCode"] for step in document["steps"]}
    assert {name for name, code in codes.items() if code} == {"a wrong value", "a wrong field"}
    assert all(step["milliseconds"] > 0 and step["command"] and step["output"] for step in document["steps"])
    assert document["memoryBytes"] > 1e6
    assert sum(step["milliseconds"] for step in document["steps"]) / 1e3 <= document["seconds"]


@pytest.mark.skipif(not UNPACKED.exists(), reason="needs the old kubectl that set-up unpacks")
def test_without_a_kubectl_on_path_the_old_one_of_set_up_plays_the_same_tour(place, tmp_path):
    nowhere = environment(place, PATH=str(tmp_path / "no programs"))
    done = subprocess.run([PODWIRE, "demo", "api", "-o", "json"], capture_output=True, env=nowhere, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert json.loads(done.stdout)["ok"] is True


def test_without_any_kubectl_the_two_places_are_named(place, tmp_path):
    program = (
        "import sys, pathlib, podwire.cluster.kubectl as it; it.UNPACKED = (pathlib.Path('/no/kubectl'),);"
        "from podwire.cli.main import main; sys.exit(main(['demo', 'api']))"
    )
    nowhere = environment(place, PATH=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=nowhere, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("podwire demo: kubectl is neither on PATH nor at /no/kubectl; install it")


def fake_kubectl(folder: Path, script: str) -> str:
    """A PATH that begins with a kubectl that tells its version, and then does as the script says."""
    folder.mkdir()
    program = folder / "kubectl"
    version = json.dumps({"clientVersion": {"minor": "32"}})
    program.write_text(f"#!/bin/sh\nif [ \"$1\" = version ]; then echo '{version}'; exit 0; fi\n{script}\n")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_a_step_that_breaks_its_promise_ends_the_demo_with_the_servers_log(place, tmp_path):
    path = fake_kubectl(tmp_path / "bin", "echo something else")
    env = environment(place, PATH=path)
    done = subprocess.run([PODWIRE, "demo", "api"], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 1
    assert "something else" in done.stdout
    assert "the step 'namespaces' did not show what was expected" in done.stderr
    assert "apiserver: API server is serving" in done.stderr
    done = subprocess.run([PODWIRE, "demo", "api", "-o", "json"], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert (document["ok"], [step["name"] for step in document["steps"]]) == (False, ["start", "namespaces"])


def test_a_server_that_does_not_come_up_ends_the_demo_with_its_log(place):
    env = environment(place, PODWIRE_FAILPOINTS="nonsense")
    done = subprocess.run([PODWIRE, "demo", "api"], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 1
    assert "BadFailpoint" in done.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_an_interrupted_demo_leaves_nothing_behind(place, tmp_path, number, code):
    """The second step hangs, so that there is something to interrupt."""
    reached = tmp_path / "reached"
    path = fake_kubectl(tmp_path / "bin", f"touch {reached}; exec sleep 60")
    demo = subprocess.Popen([PODWIRE, "demo", "api"], stdout=subprocess.DEVNULL, env=environment(place, PATH=path))
    eventually(lambda: reached.exists() or demo.poll() is not None)
    assert demo.poll() is None
    os.kill(demo.pid, number)
    try:
        assert demo.wait(30) == code
    finally:
        demo.kill()


def test_a_kept_demo_stays_up_and_prints_how_to_stop_it(place):
    done = subprocess.run(
        [PODWIRE, "demo", "api", "--keep"], capture_output=True, text=True, env=environment(place), check=True
    )
    [look] = re.findall(r"Next:\n +(kubectl .*)", done.stdout)
    [stop] = re.findall(r"To remove it:\n +(kill .*)", done.stdout)
    try:
        seen = subprocess.run(look, shell=True, capture_output=True, text=True, check=True)
        assert re.search(r"^web +0/1 +Pending", seen.stdout, re.MULTILINE)
    finally:
        subprocess.run(stop, shell=True, check=True)
    eventually(lambda: not working_in(place))
