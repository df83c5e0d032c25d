"""The files of examples/ci: their shell steps are run as GitHub and GitLab run them, with an installed wheel."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "examples/ci/action.yml").read_text(encoding="utf-8"))
JOB = yaml.safe_load((ROOT / "examples/ci/gitlab-ci.yml").read_text(encoding="utf-8"))["podwire"]
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
SOURCES = ("podwire", "shim", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")

TESTS = """
import os
from pathlib import Path

import podwire

def test_cluster():
    assert Path(os.environ["KUBECONFIG"]).exists()
    assert Path(os.environ["PODWIRE_CNI_BIN"]).is_dir()
    assert Path(podwire.__file__).is_relative_to(Path(__file__).parent)
"""
MACHINE = """
ip link set lo up
mount --bind . /mnt
mount -t tmpfs tmp /tmp
cd /mnt
exec "$@"
"""
COMMANDS = "python -m pytest -q -p no:cacheprovider --junit-xml=junit.xml test_mine.py\necho passed on $PODWIRE_PREFIX"


def scripts() -> dict[str, str]:
    found = {name: step["run"] for name, step in STEPS.items() if "run" in step}
    return found | {f"gitlab {key}": "\n".join(JOB[key]) for key in ("before_script", "script")}


@pytest.mark.parametrize(("name", "script"), scripts().items(), ids=list(scripts()))
def test_a_script_has_valid_syntax_and_contains_no_expression(name, script):
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "${{" not in script, "a value becomes part of the script: hand it over in env"


def test_the_page_names_each_input():
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(ACTION["inputs"])


def test_both_install_the_same_programs():
    packages = [
        set(re.findall(r"busybox-static.*", script)[0].split()) for script in scripts().values() if "apt" in script
    ]
    assert packages[0] | {"kubernetes-client"} == packages[1], "machines of GitHub have kubectl"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built in a copy: the build writes programs that other tests run."""
    tree = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree / name)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=tree, check=True, capture_output=True
    )
    [built] = (tree / "dist").iterdir()
    return built


def play(script, project, **env):
    """Runs a script in network and mount namespaces of its own, by a shell with the options of both services.

    The project is at /mnt, and /tmp is private: other tests look for clusters there.
    Dependencies of podwire are those of this interpreter: there is no network to install them from.
    """
    file = project / "step.sh"
    file.write_text(script)
    isolation = ["unshare", "--net", "--mount", "bash", "-ec", MACHINE, "-"]
    base = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": sysconfig.get_path("purelib")}
    quiet = {"PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*isolation, "bash", "--noprofile", "--norc", "-eo", "pipefail", file.name],
        cwd=project,
        env={**os.environ, **base, **quiet, **env},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def rendered(step, inputs):
    return {
        key: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: inputs[m[1]], value) for key, value in step["env"].items()
    }


def passed(report: Path) -> bool:
    suite = ET.parse(report).getroot().find("testsuite")
    return [suite.get(key) for key in ("tests", "failures", "errors")] == ["1", "0", "0"]


@pytest.fixture(scope="module")
def project(wheel, tmp_path_factory) -> Path:
    """A project with tests, in which the action has installed podwire.

    The GitLab job uses the same directory, so its pip has less to do.
    """
    project = tmp_path_factory.mktemp("project")
    (project / "test_mine.py").write_text(TESTS)
    step = STEPS["Install podwire"]
    shutil.copy(wheel, project)
    temporary = {"RUNNER_TEMP": "/mnt", "GITHUB_PATH": "/mnt/path"}
    done = play(step["run"], project, **temporary, **rendered(step, {"podwire": wheel.name}))
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_the_action_runs_a_program_on_a_cluster_and_fails_with_it(project):
    step = STEPS["Run the tests on a cluster"]
    inputs = {"run": f"{COMMANDS}; exit 5", "options": "--nodes 1", "junit": "junit.xml"}
    search = f"{(project / 'path').read_text().strip()}:{os.environ['PATH']}"
    done = play(step["run"], project, PATH=search, **rendered(step, inputs))
    assert done.returncode == 5, done.stdout + done.stderr
    assert "passed on /tmp/pwt" in done.stdout
    assert passed(project / "junit.xml")


def test_the_gitlab_job_runs_a_program_on_a_cluster(project, wheel):
    report = project / JOB["artifacts"]["reports"]["junit"]
    report.unlink(missing_ok=True)
    done = play("\n".join(JOB["script"]), project, PODWIRE=wheel.name, COMMANDS=COMMANDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed on /tmp/pwt" in done.stdout
    assert passed(report)
