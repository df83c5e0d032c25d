"""What is wrong with a command line is told in one line; where the program is found; how it gets into a wheel."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from podwire.shim import find

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
    "attached to several": ("attached", "/a", "/b"),
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
def test_a_wrong_command_line_is_told_in_one_line(shim, environment, words):
    done = subprocess.run([*shim, *words], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"podwire-shim: .+\n", done.stderr)
    assert len(done.stderr) < 300


def test_both_are_of_the_same_version(shim, environment):
    done = subprocess.run([*shim, "version"], env=environment, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"podwire-shim 1 (c|python)\n", done.stdout)


def test_the_program_is_taken_from_where_it_is(tmp_path):
    nowhere, script, program = (tmp_path / name for name in ("nowhere", "script", "program"))
    script.write_text("#!/bin/sh\n")
    shutil.copy("/bin/true", program)
    script.chmod(0o755)
    found = find([nowhere, script, program])
    assert (found.argv, found.compiled) == ((str(program),), True)
    program.chmod(0o644)
    found = find([nowhere, script, program])
    assert (found.argv[0], found.compiled) == (sys.executable, False)
    assert "stand-in" in found.where


def test_what_is_found_here_works():
    done = subprocess.run([*find().argv, "version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("podwire-shim 1 ")


def test_what_this_virtualenv_has_is_what_the_source_says(c_program):
    """`scripts/setup` compiles anew when the source changes."""
    assert find().compiled
    assert Path(find().argv[0]).read_bytes() == c_program.read_bytes()


def wheel(tmp_path, **environment: str) -> zipfile.ZipFile:
    """Built from a copy, so that nobody else's build is disturbed."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copytree(ROOT / "shim", copy / "shim")
    shutil.copytree(ROOT / "podwire" / "shim", copy / "podwire" / "shim", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "podwire" / "__init__.py").touch()
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(argv, cwd=copy, env=os.environ | environment, check=True, capture_output=True)
    return zipfile.ZipFile(next(tmp_path.glob("*.whl")))


def test_a_wheel_brings_each_program_twice_as_a_script_and_as_data(tmp_path):
    with wheel(tmp_path) as built:
        names = [each for each in built.namelist() if Path(each).name in ("podwire-cni", "podwire-shim")]
        places = ("podwire-0.1.0.data/scripts", "podwire/shim")
        assert sorted(names) == [f"{place}/{each}" for place in places for each in ("podwire-cni", "podwire-shim")]
        assert all(built.read(each).startswith(b"\x7fELF") for each in names)
        assert all(built.getinfo(each).external_attr >> 16 & 0o111 for each in names)
        assert re.search(r"-py3-none-linux_\w+\.whl$", built.filename)


def test_where_there_is_no_compiler_a_wheel_for_every_machine_brings_the_stand_in(tmp_path):
    with wheel(tmp_path, CC="no-such-compiler") as built:
        names = [each for each in built.namelist() if Path(each).name in ("podwire-cni", "podwire-shim")]
        assert names == ["podwire-0.1.0.data/scripts/podwire-shim"]
        script = built.read(names[0])
        assert script.startswith(b"#!python\n")
        assert built.filename.endswith("-py3-none-any.whl")
    done = subprocess.run([sys.executable, "-c", script, "version"], capture_output=True, text=True, check=True)
    assert done.stdout == "podwire-shim 1 python\n"


def test_the_program_is_small_enough_to_be_read():
    source = (ROOT / "shim" / "podwire-shim.c").read_text()
    assert len(source.splitlines()) <= 550
    assert max(map(len, source.splitlines())) <= 120
