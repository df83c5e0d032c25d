"""Errors of a command line are reported in one line; where the program is found; how it gets into a wheel."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from podwire.shim import ShimMissing, find_shim

ROOT = Path(__file__).parents[2]
RUN = ("run", "--id", "x", "--bundle", "/b", "--state", "/s")
WRONG = {
    "nothing": (),
    "an unknown verb": ("walk",),
    "an unknown option": (*RUN, "--fast", "--", "true"),
    "an option of the other verb": ("exec", "--log", "/l", "--", "true"),
    "no value": ("exec", "--cgroup"),
    "no command": (*RUN, "--"),
    "no dashes": (*RUN, "true"),
    "no state": ("run", "--id", "x", "--bundle", "/b", "--", "true"),
    "a relative path": ("run", "--id", "x", "--bundle", "b", "--state", "/s", "--", "true"),
    "an endless path": ("exec", "--cgroup", "/" + "x" * 4000, "--", "true"),
    "too many cgroups": ("exec", *(("--cgroup", "/c") * 17), "--", "true"),
    "version and more": ("version", "please"),
    "attached to nothing": ("attached",),
    "attached by a relative path": ("attached", "pod"),
    "pause without namespaces": ("pause", "id"),
    "attached to several": ("attached", "/a", "/b"),
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
def test_a_wrong_command_line_is_reported_in_one_line(shim, environment, words):
    done = subprocess.run([*shim, *words], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"podwire-shim: .+\n", done.stderr)
    assert len(done.stderr) < 300


def test_version_names_the_contract(shim, environment):
    done = subprocess.run([*shim, "version"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "podwire-shim 1 c\n"


def test_find_shim_takes_only_an_executable_program(tmp_path):
    missing, script, program = (tmp_path / name for name in ("missing", "script", "program"))
    script.write_text("#!/bin/sh\n")
    shutil.copy("/bin/true", program)
    script.chmod(0o755)
    assert find_shim([missing, script, program]) == program
    program.chmod(0o644)
    with pytest.raises(ShimMissing, match=r"podwire-shim is not in .*/missing, .*apt install gcc"):
        find_shim([missing, script, program])


def test_the_installed_program_runs():
    done = subprocess.run([find_shim(), "version"], capture_output=True, text=True, check=True)
    assert done.stdout == "podwire-shim 1 c\n"


def test_the_installed_program_is_built_from_this_source(c_program):
    """`scripts/setup` compiles anew when the source changes."""
    assert find_shim().read_bytes() == c_program.read_bytes()


def build_wheel(tmp_path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Builds from a copy, so that no other build is disturbed."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copytree(ROOT / "shim", copy / "shim")
    shutil.copytree(ROOT / "podwire" / "shim", copy / "podwire" / "shim", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "podwire" / "__init__.py").touch()
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    return subprocess.run(argv, cwd=copy, env=os.environ | environment, check=False, capture_output=True, text=True)


def test_a_wheel_has_each_program_as_a_script_and_as_data(tmp_path):
    done = build_wheel(tmp_path)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = [name for name in wheel.namelist() if Path(name).name in ("podwire-cni", "podwire-shim")]
        folders = ("podwire-0.1.0.data/scripts", "podwire/shim")
        assert sorted(names) == [f"{folder}/{name}" for folder in folders for name in ("podwire-cni", "podwire-shim")]
        assert all(wheel.read(name).startswith(b"\x7fELF") for name in names)
        assert all(wheel.getinfo(name).external_attr >> 16 & 0o111 for name in names)
        assert re.search(r"-py3-none-linux_\w+\.whl$", wheel.filename)


def test_without_a_compiler_the_build_fails_and_names_the_package(tmp_path):
    done = build_wheel(tmp_path, CC="no-such-compiler")
    assert done.returncode != 0
    message = "podwire: cannot compile podwire-shim: no-such-compiler is not on PATH; install a C compiler"
    assert message in " ".join((done.stdout + done.stderr).split())
    assert list(tmp_path.glob("*.whl")) == []


def test_the_program_is_small_enough_to_be_read():
    source = (ROOT / "shim" / "podwire-shim.c").read_text()
    assert len(source.splitlines()) <= 660
    assert max(map(len, source.splitlines())) <= 120
