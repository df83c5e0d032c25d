"""The fixtures as an author of a plugin uses them, by a pytest of its own; and `podwire test run`."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytestmark = pytest.mark.timeout(300)

PODWIRE = Path(sys.executable).with_name("podwire")

TESTS = """
import json
import pytest

def test_pod_gets_its_network(podwire_pod, podwire_namespace):
    pod = podwire_pod("web")
    assert pod.namespace == podwire_namespace
    pod.trace.assert_called("CNIPlugin", "ADD", stdin={"name": "podwire", "type": "bridge"})
    pod.trace.assert_attached_before_start()
    assert pod.object["status"]["podIP"] in pod.run("ip", "addr")

def test_namespaces_are_apart(podwire_pod):
    assert podwire_pod("web").object["spec"]["nodeName"] == "node-1"

def test_failure_is_seen(podwire_pod):
    podwire_pod("web").trace.assert_called("CNIPlugin", "ADD", stdin={"type": "ptp"})

def test_node_has_standard_paths(podwire_node):
    assert "bridge" in podwire_node.exec("ls", "/opt/cni/bin", "/var/lib/podwire/cni/bin")
    with open("prefix", "w") as file:
        file.write(str(podwire_node.prefix))

def test_api_server_alone(podwire_api):
    assert podwire_api.kubeconfig.exists()
"""


def isolated(*words, cwd, **env):
    """Runs a program in network and mount namespaces of its own."""
    shell = 'ip link set lo up && exec "$@"'
    return subprocess.run(
        ["unshare", "--net", "--mount", "bash", "-c", shell, "-", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_fixtures_with_xdist_and_junit(tmp_path):
    (tmp_path / "test_mine.py").write_text(TESTS)
    options = ["-p", "podwire.testing.pytest_plugin", "-p", "xdist", "-n", "2", "-q", "--junit-xml", "r.xml"]
    done = isolated("env", "-u", "PODWIRE_PYTEST_DIRECTORY", sys.executable, "-m", "pytest", *options, cwd=tmp_path)
    suite = ET.parse(tmp_path / "r.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "1", "0"), done.stdout
    assert "CNIPlugin did not get ADD with {'stdin': {'type': 'ptp'}}" in done.stdout
    assert done.returncode == 1
    prefix = Path((tmp_path / "prefix").read_text())
    assert prefix.parts[2].startswith("pwt")
    assert not Path(*prefix.parts[:3]).exists()


def test_run_gives_a_program_a_cluster_and_returns_its_code(tmp_path):
    script = (
        "podwire status --prefix $PODWIRE_PREFIX | head -1; test -d $PODWIRE_CNI_BIN && test -f $KUBECONFIG && exit 7"
    )
    path = f"{PODWIRE.parent}:{os.environ['PATH']}"
    done = isolated(PODWIRE, "test", "run", "--", "bash", "-c", script, cwd=tmp_path, PATH=path)
    assert done.returncode == 7, done.stdout + done.stderr
    assert done.stdout.startswith("up         cluster below /tmp/pwt")
    assert not any(Path(word).exists() for word in done.stdout.split() if word.startswith("/tmp/pwt"))


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [(["run"], 2, "no program given"), (["run", "--hardware", "nothing", "--", "true"], 1, "nothing")],
)
def test_bad_input_of_run(words, code, why, tmp_path):
    done = isolated(PODWIRE, "test", *words, cwd=tmp_path)
    assert done.returncode == code
    assert why in done.stderr
    assert "Traceback" not in done.stderr
