"""Completions and manual pages are generated from the parser, and complete."""

import shutil
import subprocess

import pytest

from podwire.cli import completion, man
from podwire.cli.command_tree import CommandNode, read_tree
from podwire.cli.main import COMMANDS, main, whole_parser


@pytest.fixture(scope="module")
def tree() -> CommandNode:
    return read_tree(whole_parser())


def test_every_command_and_its_verbs_are_in_the_tree(tree):
    assert [verb.words[1] for verb in tree.verbs] == [command.name for command in COMMANDS]
    paths = {node.words for node in tree.walk()}
    assert {("podwire", "cni", "add"), ("podwire", "nri", "play"), ("podwire", "image", "build")} <= paths
    [up] = [verb for verb in tree.verbs if verb.words[-1] == "up"]
    assert {"--detach", "--name", "--nodes"} <= {flag for option in up.options for flag in option.flags}


def complete(script: str, line: str) -> list[str]:
    """Asks bash what it offers at the end of a line."""
    words = line.split(" ")
    arguments = " ".join(f'"{word}"' for word in words)
    test = f'COMP_WORDS=({arguments}); COMP_CWORD={len(words) - 1}; _podwire; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{test}"], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("podwire do", ["down", "doctor"]),
        ("podwire up --det", ["--detach"]),
        ("podwire up -o ", ["text", "json"]),
        ("podwire cni li", ["list"]),
        ("podwire nri play --h", ["--help"]),
        ("podwire completion z", ["zsh"]),
    ],
)
def test_bash_completes(tree, line, offered):
    assert complete(completion.bash(tree), line) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(tree, shell):
    text = {"zsh": completion.zsh, "fish": completion.fish}[shell](tree)
    assert "detach" in text
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_has_a_manual_page(tree, tmp_path, capsys):
    assert main(["man", "--directory", str(tmp_path)]) == 0
    assert f"{len(COMMANDS) + 1} pages" in capsys.readouterr().out
    pages = {path.name: path.read_text() for path in (tmp_path / "man8").iterdir()}
    assert set(pages) == {"podwire.8", *(f"podwire-{command.name}.8" for command in COMMANDS)}
    for command in COMMANDS:
        assert pages[f"podwire-{command.name}.8"].startswith(f'.TH "PODWIRE-{command.name.upper()}" 8')


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_manual_pages_have_no_roff_errors(tree):
    for node in (tree, *tree.verbs):
        words = ["groff", "-K", "utf8", "-man", "-Tutf8", "-ww", "-z"]
        done = subprocess.run(words, input=man.page(node), capture_output=True, text=True, check=False)
        assert (node.words, done.stderr) == (node.words, "")


def test_a_page_of_an_unknown_command_suggests_a_known_one(capsys):
    assert main(["man", "upp"]) == 1
    assert "did you mean `up`?" in capsys.readouterr().err
