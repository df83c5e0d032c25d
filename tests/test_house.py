"""The rules of the house that no linter knows."""

import ast
import configparser
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PODWIRE = ROOT / "podwire"
PLACES = ("podwire", "tests", "scripts", "docs", "examples", "benchmarks", "requirements", "deploy", ".ci")

LONG_FILES: dict[str, str] = {}
"""A path to the reason why that file may be longer."""
LONG_FUNCTIONS: dict[str, str] = {}
"""`path:function` to the reason why that function may be longer."""

FILE_LINES, FUNCTION_LINES, TEST_FILE_LINES, FACE = 600, 80, 600, 7


def sources(place: Path) -> list[Path]:
    return sorted(each for each in place.rglob("*.py") if not each.name.endswith("_pb2.py"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file that belongs to the project."""
    listed = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]  # a file in a linked work tree
    listed += [each for place in PLACES for each in (ROOT / place).rglob("*") if each.is_file()]
    for each in listed:
        if "__pycache__" not in each.parts:
            yield each, each.read_text(encoding="utf-8", errors="replace")


def rooms() -> list[Path]:
    """The packages of the layer in which rooms stand side by side, as the import rules name them."""
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    [layer] = [
        each for each in rules["importlinter:contract:layers"]["layers"].splitlines() if "podwire.apiserver" in each
    ]
    found = [ROOT.joinpath(*each.strip(" ()").split(".")) for each in layer.split("|")]
    return [each for each in found if each.is_dir()]


@pytest.mark.parametrize("room", rooms(), ids=lambda each: each.name)
def test_a_room_tells_what_it_does_what_it_speaks_what_is_where_and_how_to_try_it(room):
    text = (room / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[:4] == ["What it does", "Speaks", "Files", "Try it"]


@pytest.mark.parametrize("room", rooms(), ids=lambda each: each.name)
def test_a_rooms_readme_names_every_file_and_no_other(room):
    text = (room / "README.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", text, flags=re.MULTILINE)[3]
    told = set(re.findall(r"`([a-z0-9_]+(?:\.py|/))`", section))
    there = {each.name for each in room.glob("*.py")} | {f"{each.parent.name}/" for each in room.glob("*/__init__.py")}
    assert told == there - {"__init__.py"}


def defined_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign(targets=targets):
                names |= {each.id for each in targets if isinstance(each, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return {each for each in names if not each.startswith("_")}


def passed_on_names(tree: ast.Module) -> set[str]:
    """What a module takes from elsewhere without using it."""
    taken = {each.asname or each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return taken - used


def shown_names(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(each, "id", "") for each in node.targets] == ["__all__"]:
            return ast.literal_eval(node.value)
    return None


def in_order(names: list[str]) -> list[str]:
    """Constants, then classes, then the rest, each by the alphabet."""
    return sorted(names, key=lambda each: (not each.isupper(), not each[:1].isupper(), each))


@pytest.mark.parametrize("path", sorted(PODWIRE.rglob("__init__.py")), ids=named)
def test_the_face_of_a_package_is_complete_and_in_order(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "says nothing about itself"
    shown = shown_names(tree) or []
    assert passed_on_names(tree) <= set(shown), "is taken from elsewhere for nothing"
    assert defined_names(tree) <= set(shown), "is neither shown nor marked as internal by an underscore"
    assert shown == in_order(shown)


@pytest.mark.parametrize("room", rooms(), ids=lambda each: each.name)
def test_the_face_of_a_room_is_small(room):
    tree = ast.parse((room / "__init__.py").read_text(encoding="utf-8"))
    assert len(shown_names(tree) or []) <= FACE


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function with its length; its docstring does not count."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            told = node.body[0] if ast.get_docstring(node) is not None else None
            spoken = (told.end_lineno - told.lineno + 1) if told else 0
            yield node.name, node.end_lineno - node.lineno + 1 - spoken


def test_no_file_is_longer_than_a_reader_likes():
    limits = dict.fromkeys(sources(PODWIRE), FILE_LINES) | dict.fromkeys(sources(ROOT / "tests"), TEST_FILE_LINES)
    lengths = {each: len(each.read_text(encoding="utf-8").splitlines()) for each in limits}
    long = {named(each): lines for each, lines in lengths.items() if lines > limits[each]}
    assert {where: lines for where, lines in long.items() if where not in LONG_FILES} == {}
    assert set(LONG_FILES) <= set(long), "an exception that nothing needs any more"


def test_no_function_is_longer_than_a_screen():
    long = {
        f"{named(path)}:{name}": lines
        for path in [*sources(PODWIRE), *sources(ROOT / "tests")]
        for name, lines in functions(path)
        if lines > FUNCTION_LINES
    }
    assert {where: lines for where, lines in long.items() if where not in LONG_FUNCTIONS} == {}
    assert set(LONG_FUNCTIONS) <= set(long), "an exception that nothing needs any more"


WORKPLACE = "sha" + "red/"
FORBIDDEN = {
    "a package registry is named by the machine's own settings": (
        "py" + "pi.org",
        "python" + "hosted.org",
        "registry.npm" + "js.org",
        "crates" + ".io",
        "proxy.golang" + ".org",
        "deb.debian" + ".org",
        "archive.ubuntu" + ".com",
    ),
    "work that is left over is done or written down where people look for it": ("TO" + "DO", "FIX" + "ME", "XX" + "X:"),
    "a merge was left unfinished": ("<<<<<<" + "< ", ">>>>>>" + "> "),
    "the project speaks of itself alone": (f"../{WORKPLACE}", f"{WORKPLACE}facts", "/wo" + "rk/"),
}


@pytest.mark.parametrize(("words", "why"), [(words, why) for why, words in FORBIDDEN.items()], ids=list(FORBIDDEN))
def test_the_tree_is_free_of_words_for_this_reason(words, why):
    found = {
        f"{named(path)}:{number}": line.strip()[:100]
        for path, text in texts()
        if any(word in text for word in words)
        for number, line in enumerate(text.splitlines(), 1)
        if any(word in line for word in words)
    }
    assert found == {}, why


SILENCED = re.compile(r"# noqa(?!: [A-Z]+[0-9]+(?:, ?[A-Z]+[0-9]+)*[ -]+\S)|# type: ignore(?!\[[a-z-, ]+\]\s+\S)")


def test_whoever_silences_a_linter_says_what_and_why():
    found = [
        f"{named(path)}:{number}"
        for path in [*sources(PODWIRE), *sources(ROOT / "tests")]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if SILENCED.search(line) and path != Path(__file__)
    ]
    assert found == []


def test_generated_code_is_what_the_generator_makes_of_the_protos(tmp_path):
    protos = sorted(named(each) for each in PODWIRE.rglob("*.proto"))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            "-I.",
            f"--python_out={tmp_path}",
            f"--pyi_out={tmp_path}",
            *protos,
        ],
        cwd=ROOT,
        check=True,
    )
    made = {str(each.relative_to(tmp_path)): each.read_bytes() for each in tmp_path.rglob("*_pb2.py*")}
    kept = {named(each): each.read_bytes() for each in PODWIRE.rglob("*_pb2.py*") if each.suffix in (".py", ".pyi")}
    assert sorted(made) == sorted(kept)
    assert [each for each in made if made[each] != kept[each]] == [], "run `make proto`"


def wanted(name: str) -> set[str]:
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    return {each.strip() for each in lines if each.strip() and not each.startswith(("#", "-"))}


def locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))


def test_the_project_asks_for_what_the_runtime_requirements_list():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["dependencies"]) == wanted("runtime.in")


def test_both_locks_hold_what_is_asked_for_and_agree():
    runtime, development = locked("runtime.lock"), locked("dev.lock")
    for asked, lock in ((wanted("runtime.in"), runtime), (wanted("dev.in"), development)):
        assert {re.split("[=<>~!]", each)[0].lower() for each in asked} <= set(lock)
    assert {name: development.get(name) for name in runtime} == runtime


def test_every_locked_file_has_a_hash():
    for name in ("runtime.lock", "dev.lock"):
        entries = re.split(r"\n(?=\S)", (ROOT / "requirements" / name).read_text(encoding="utf-8").strip())
        assert [each.splitlines()[0] for each in entries if "--hash=sha256:" not in each] == []


def test_the_page_on_dependencies_tells_of_each():
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    names = {re.split("[=<>~!]", each)[0] for each in wanted("runtime.in") | wanted("dev.in")}
    assert {each for each in names if f"`{each}`" not in text} == set()


def test_make_has_the_targets_that_people_are_told_of():
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in told.splitlines()} >= {"bench", "clean", "demo", "help", "lint", "soak", "test"}


@pytest.mark.parametrize("script", [*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci" / "run"], ids=named)
def test_a_script_can_be_run_and_stops_at_what_it_does_not_know(script):
    assert script.stat().st_mode & 0o111
    assert re.search(r"^set -e?uo pipefail$", script.read_text(encoding="utf-8"), re.MULTILINE)
    subprocess.run(["bash", "-n", script], check=True)
