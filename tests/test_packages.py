"""Published packages: tags of wheels and the bill of materials. `scripts/package --check` tries whole builds."""

import importlib.util
import json
import os
import platform
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


class TestSingleFile:
    """The single file, made of a small tree instead of all packages."""

    @pytest.fixture
    def file(self, tmp_path):
        script = load("release/single_file.py")
        tree = tmp_path / "tree"
        (tree / "podwire/cli").mkdir(parents=True)
        (tree / "podwire/cli/entry.py").write_text(
            "import sys\n\ndef main():\n    print(sys.prefix, sys.argv[1:])\n    return 7\n"
        )
        output = tmp_path / "podwire.pyz"
        script.PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
        script.write(tree, output, platform.machine())
        return output

    def run(self, file, cache, *words):
        environment = {"PODWIRE_CACHE": str(cache), "PATH": os.environ["PATH"]}
        return subprocess.run(
            [sys.executable, file, *words], env=environment, capture_output=True, text=True, check=False
        )

    def test_it_unpacks_itself_once_and_runs_there(self, file, tmp_path):
        first, second = (self.run(file, tmp_path / "cache", "a", "b c") for _ in range(2))
        [unpacked] = (tmp_path / "cache").iterdir()
        assert (first.returncode, first.stdout) == (7, f"{unpacked} ['a', 'b c']\n")
        assert first.stderr == f"podwire: unpacking to {unpacked}, once\n"
        assert (second.returncode, second.stdout, second.stderr) == (7, first.stdout, "")

    def test_a_cache_where_others_may_write_is_refused(self, file, tmp_path):
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache").chmod(0o777)
        done = self.run(file, tmp_path / "cache")
        assert done.returncode == 1
        assert "others may write there; name another directory with PODWIRE_CACHE" in done.stderr

    def test_another_processor_and_a_cache_that_cannot_be_made_are_named(self, file, tmp_path):
        done = self.run(file, "/proc/nowhere")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "podwire: cannot unpack: /proc/nowhere" in done.stderr
        script = load("release/single_file.py")
        script.write(tmp_path / "tree", tmp_path / "other.pyz", "riscv64")
        done = self.run(tmp_path / "other.pyz", tmp_path / "cache")
        assert done.returncode == 1
        assert (
            f"is for Python 3.11 on riscv64, and this is Python {sys.version_info[0]}.{sys.version_info[1]}"
            in done.stderr
        )

    def test_two_builds_have_the_same_bytes(self, file, tmp_path):
        script = load("release/single_file.py")
        script.PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
        script.write(tmp_path / "tree", tmp_path / "again.pyz", platform.machine())
        assert file.read_bytes() == (tmp_path / "again.pyz").read_bytes()
