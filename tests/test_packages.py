"""Published packages: tags of wheels and the bill of materials. `scripts/package --check` tries whole builds."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging import tags, utils

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements/runtime.lock").read_text(encoding="utf-8")


def load(path: str):
    spec = importlib.util.spec_from_file_location(f"packages_{Path(path).stem}", ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_pip_accepts_the_wheel_on_its_architecture_only(architecture):
    name = f"podwire-0.1.0-{load('hatch_build.py').wheel_tag(architecture)}.whl"
    [tag] = utils.parse_wheel_filename(name)[3]
    accepted = {
        machine: tag in tags.compatible_tags((3, 11), "cp311", [f"manylinux_2_17_{machine}", f"linux_{machine}"])
        for machine in ("x86_64", "aarch64")
    }
    assert accepted == {machine: machine == architecture for machine in accepted}


def test_a_wheel_that_is_not_published_is_for_this_machine():
    assert re.fullmatch(r"py3-none-linux_\w+", load("hatch_build.py").wheel_tag(None))


def bill() -> str:
    argv = [sys.executable, ROOT / "requirements/sbom.py", "1.2.3", "1700000000"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_the_bill_of_materials_has_each_locked_package_with_its_hashes():
    parts = json.loads(bill())["components"]
    locked = re.findall(r"^(\S+)==(\S+)", LOCK, re.MULTILINE)
    assert [(part["name"], part["version"]) for part in parts] == locked
    hashes = [reference["hashes"][0]["content"] for part in parts for reference in part["externalReferences"]]
    assert hashes == re.findall(r"sha256:([0-9a-f]{64})", LOCK)
    assert {part["scope"] for part in parts if part["name"] in ("aiohttp", "grpcio")} == {"required"}
    markers = {part["name"]: part["properties"][0]["value"] for part in parts if part["scope"] == "optional"}
    assert markers["backports-zstd"] == "python_full_version < '3.14'"


def test_the_bill_of_materials_follows_from_lock_version_and_time():
    document = json.loads(bill())
    assert bill() == bill()
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert document["metadata"]["component"]["purl"] == "pkg:pypi/podwire@1.2.3"
    other = load("requirements/sbom.py").bill(LOCK, "1.2.4", 1700000000)
    assert other["serialNumber"] != document["serialNumber"]
