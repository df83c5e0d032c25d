"""`podwire cni test` checks plugins: ours, and ones that are broken in one way each."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

PODWIRE = Path(sys.executable).with_name("podwire")


@pytest.fixture(scope="module")
def plugins(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("bin")
    command = [PODWIRE, "cni", "install", directory, "--socket", directory / "none.sock"]
    subprocess.run(command, check=True, capture_output=True)
    return directory


def check(plugin, *options, output="json"):
    command = [PODWIRE, "cni", "test", plugin, "-o", output, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def outcomes(done, outcome):
    report = json.loads(done.stdout)
    return {case["name"] for case in report["cases"] if case["outcome"] == outcome}


@pytest.mark.parametrize("name", ["bridge", "host-local", "tuning"])
def test_our_plugins_meet_all_requirements(plugins, name):
    done = check(plugins / name)
    assert (outcomes(done, "failed"), outcomes(done, "warned")) == (set(), set()), done.stdout
    assert done.returncode == 0
    assert len(outcomes(done, "passed")) > 20


BROKEN = {
    "DEL fails when it has nothing to delete": (
        "if [ $CNI_COMMAND = DEL ] && ! nsenter --net=$CNI_NETNS ip link show $CNI_IFNAME; then exit 1; fi",
        "",
        "DEL succeeds again, and for a container that was never added",
    ),
    "CHECK sees nothing": (
        "if [ $CNI_COMMAND = CHECK ]; then exit 0; fi",
        "",
        "CHECK fails when the interface is gone",
    ),
    "the result is of another version": (
        "",
        '| sed "s/1.1.0/1.0.0/"',
        "the result has the cniVersion of the request",
    ),
    "it logs to standard output": (
        "echo starting",
        "",
        "ADD makes the interface, or reports addresses, and returns a result",
    ),
    "it takes an interface that exists": (
        "if [ $CNI_COMMAND = ADD ]; then nsenter --net=$CNI_NETNS ip link del $CNI_IFNAME; fi 2>/dev/null",
        "",
        "ADD fails when the interface exists already, and leaves it alone",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "case"), BROKEN.values(), ids=BROKEN)
def test_broken_plugin_fails_the_case_of_its_fault(plugins, tmp_path, before, after, case):
    broken = tmp_path / "bridge"
    broken.write_text(f"#!/bin/bash\nset -o pipefail\n{before}\nexec 3<&0\n{plugins / 'bridge'} <&3 {after}\n")
    broken.chmod(0o755)
    done = check(broken, "--bin-dir", plugins)
    assert done.returncode == 1
    assert case in outcomes(done, "failed"), done.stdout


def test_plugin_that_leaks_is_warned_of_and_the_report_names_the_section(plugins, tmp_path):
    broken = tmp_path / "bridge"
    broken.write_text(f"#!/bin/bash\nif [ $CNI_COMMAND = GC ]; then exit 0; fi\nexec {plugins / 'bridge'}\n")
    broken.chmod(0o755)
    done = check(broken, "--bin-dir", plugins, output="text")
    assert done.returncode == 0
    assert "! GC releases attachments that are not valid any more\n    SHOULD, section 2, GC: Clean up" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("32 passed, 0 failed, 2 warned, 1 skipped")


def test_report_for_junit_counts_failures(tmp_path):
    plugin = tmp_path / "nothing"
    plugin.write_text("#!/bin/sh\nexit 3\n")
    plugin.chmod(0o755)
    done = check(plugin, output="junit")
    suite = ET.fromstring(done.stdout)
    assert done.returncode == 1
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) > 10
    assert suite.find("testcase/failure").text.startswith("MUST, section 2, VERSION")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["/etc/passwd"], "is not a program that can be run"),
        (["/bin/true", "--config", "/etc/passwd"], "not valid JSON"),
        (["/bin/true", "--config", "/nowhere"], "No such file or directory"),
    ],
)
def test_bad_input_is_one_line(words, why):
    done = subprocess.run([PODWIRE, "cni", "test", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1
