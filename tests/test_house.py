"""Rules of this project that no linter checks."""

import ast
import configparser
import re
import subprocess
import sys
import tomllib
from collections import Counter
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

FILE_LINES, FUNCTION_LINES, TEST_FILE_LINES, PUBLIC_NAMES = 600, 80, 700, 7


def sources(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*.py") if not path.name.endswith("_pb2.py"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def texts() -> Iterator[tuple[Path, str]]:
    """Yields every text file of the project."""
    listed = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]  # a file in a linked work tree
    listed += [path for place in PLACES for path in (ROOT / place).rglob("*") if path.is_file()]
    for path in listed:
        if "__pycache__" not in path.parts:
            yield path, path.read_text(encoding="utf-8", errors="replace")


def components() -> list[Path]:
    """The packages of the layer of components, as the import rules name them."""
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    layers = rules["importlinter:contract:layers"]["layers"].splitlines()
    [layer] = [line for line in layers if "podwire.apiserver" in line]
    paths = [ROOT.joinpath(*name.strip(" ()").split(".")) for name in layer.split("|")]
    return [path for path in paths if path.is_dir()]


@pytest.mark.parametrize("package", components(), ids=lambda path: path.name)
def test_the_readme_of_a_component_has_the_four_sections(package):
    text = (package / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[:4] == ["What it does", "Speaks", "Files", "Try it"]


@pytest.mark.parametrize("package", components(), ids=lambda path: path.name)
def test_the_readme_of_a_component_lists_its_files(package):
    text = (package / "README.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", text, flags=re.MULTILINE)[3]
    listed = set(re.findall(r"`([a-z0-9_]+(?:\.py|/))`", section))
    modules = {path.name for path in package.glob("*.py")}
    packages = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert listed == (modules | packages) - {"__init__.py"}


def defined_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return {name for name in names if not name.startswith("_")}


def reexported_names(tree: ast.Module) -> set[str]:
    """Names that a module imports without using them."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    return imported - {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def public_names(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]:
            return ast.literal_eval(node.value)
    return None


def in_order(names: list[str]) -> list[str]:
    """Constants, then classes, then the rest, each in alphabetical order."""
    return sorted(names, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))


@pytest.mark.parametrize("path", sorted(PODWIRE.rglob("__init__.py")), ids=named)
def test_the_public_names_of_a_package_are_complete_and_in_order(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the package has no docstring"
    names = public_names(tree) or []
    assert reexported_names(tree) <= set(names), "imported, neither used nor in __all__"
    assert defined_names(tree) <= set(names), "neither in __all__ nor marked as internal by an underscore"
    assert names == in_order(names)


@pytest.mark.parametrize("package", components(), ids=lambda path: path.name)
def test_a_component_has_few_public_names(package):
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    assert len(public_names(tree) or []) <= PUBLIC_NAMES


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yields each function with its length without the docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = node.body[0] if ast.get_docstring(node) is not None else None
            documentation = (docstring.end_lineno - docstring.lineno + 1) if docstring else 0
            yield node.name, node.end_lineno - node.lineno + 1 - documentation


def test_no_file_is_too_long():
    limits = dict.fromkeys(sources(PODWIRE), FILE_LINES) | dict.fromkeys(sources(ROOT / "tests"), TEST_FILE_LINES)
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in limits}
    long = {named(path): lines for path, lines in lengths.items() if lines > limits[path]}
    assert {path: lines for path, lines in long.items() if path not in LONG_FILES} == {}
    assert set(LONG_FILES) <= set(long), "an exception that is not needed any more"


def test_no_function_is_too_long():
    long = {
        f"{named(path)}:{name}": lines
        for path in [*sources(PODWIRE), *sources(ROOT / "tests")]
        for name, lines in functions(path)
        if lines > FUNCTION_LINES
    }
    assert {name: lines for name, lines in long.items() if name not in LONG_FUNCTIONS} == {}
    assert set(LONG_FUNCTIONS) <= set(long), "an exception that is not needed any more"


WORKPLACE = "sha" + "red/"
FORBIDDEN = {
    "package registries are configured by the machine": (
        "py" + "pi.org",
        "python" + "hosted.org",
        "registry.npm" + "js.org",
        "crates" + ".io",
        "proxy.golang" + ".org",
        "deb.debian" + ".org",
        "archive.ubuntu" + ".com",
    ),
    "unfinished work is done or documented": ("TO" + "DO", "FIX" + "ME", "XX" + "X:"),
    "a merge conflict was committed": ("<<<<<<" + "< ", ">>>>>>" + "> "),
    "the project speaks of itself alone": (f"../{WORKPLACE}", f"{WORKPLACE}facts", "/wo" + "rk/"),
}


@pytest.mark.parametrize(("words", "why"), [(words, why) for why, words in FORBIDDEN.items()], ids=list(FORBIDDEN))
def test_the_tree_is_free_of_forbidden_words(words, why):
    hits = {
        f"{named(path)}:{number}": line.strip()[:100]
        for path, text in texts()
        if any(word in text for word in words)
        for number, line in enumerate(text.splitlines(), 1)
        if any(word in line for word in words)
    }
    assert hits == {}, why


SILENCED = re.compile(r"# noqa(?!: [A-Z]+[0-9]+(?:, ?[A-Z]+[0-9]+)*[ -]+\S)|# type: ignore(?!\[[a-z-, ]+\]\s+\S)")


def test_a_silenced_linter_rule_has_a_reason():
    hits = [
        f"{named(path)}:{number}"
        for path in [*sources(PODWIRE), *sources(ROOT / "tests")]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if SILENCED.search(line) and path != Path(__file__)
    ]
    assert hits == []


def test_generated_code_matches_the_protos(tmp_path):
    protos = sorted(named(path) for path in PODWIRE.rglob("*.proto"))
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
    generated = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*_pb2.py*")}
    committed = {
        named(path): path.read_bytes() for path in PODWIRE.rglob("*_pb2.py*") if path.suffix in (".py", ".pyi")
    }
    assert sorted(generated) == sorted(committed)
    assert [path for path in generated if generated[path] != committed[path]] == [], "run `make proto`"


def requirements(name: str) -> set[str]:
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith(("#", "-"))}


def locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))


def test_project_dependencies_equal_the_runtime_requirements():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["dependencies"]) == requirements("runtime.in")


def test_both_lock_files_are_complete_and_agree():
    runtime, development = locked("runtime.lock"), locked("dev.lock")
    for required, lock in ((requirements("runtime.in"), runtime), (requirements("dev.in"), development)):
        assert {re.split("[=<>~!;]", line)[0].lower() for line in required} <= set(lock)
    assert {name: development.get(name) for name in runtime} == runtime


def test_every_locked_package_has_a_hash():
    for name in ("runtime.lock", "dev.lock"):
        entries = re.split(r"\n(?=\S)", (ROOT / "requirements" / name).read_text(encoding="utf-8").strip())
        assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_page_on_dependencies_names_each():
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    names = {re.split("[=<>~!;]", line)[0] for line in requirements("runtime.in") | requirements("dev.in")}
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_make_has_the_documented_targets():
    output = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in output.splitlines()} >= {
        "bench",
        "clean",
        "demo",
        "help",
        "lint",
        "soak",
        "test",
    }


@pytest.mark.parametrize("script", [*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci" / "run"], ids=named)
def test_a_script_is_executable_and_strict(script):
    assert script.stat().st_mode & 0o111
    assert re.search(r"^set -e?uo pipefail$", script.read_text(encoding="utf-8"), re.MULTILINE)
    subprocess.run(["bash", "-n", script], check=True)


# Plain words: cheap checks that keep the vocabulary of docs/glossary.md. A check must not force bad prose: an exception
# is a row of a table below, with its reason.

LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})

SHORT_LOG_MESSAGES: dict[str, str] = {}
"""Log message to the reason why fewer than three words are enough."""
REPEATED_LOG_MESSAGES: dict[str, str] = {}
"""`package: message` to the reason why two places log the same."""
NEGATIONS: dict[str, str] = {}
"""Error text to the reason why it may contain "is no "."""
FREE_RELATIVES: dict[str, str] = {}
"""First words of a docstring to the reason why they read better than a noun."""
METAPHORS: dict[str, str] = {
    'docs/apiserver.md: The Ferry "morning" is invalid: spec: Invalid value: more are booked than there are seats': (
        "a message of the example's own rule, about a ferry"
    ),
    'podwire/nriplugins/network/policy/program.py: return f"{direction.lower()}{version}-judge"': "an nft chain",
}
"""`path: line` to the reason why the word is not a metaphor there."""

FREE_RELATIVE = re.compile(r"(Who|Whoever|Whose|Whom|What|Whatever|Which|Whichever|That)\b")
NEGATION = re.compile(r"\bis no (?!longer\b|more\b)|\bis none of\b")
METAPHOR = re.compile(
    r"\b(rooms?|chairs?|guests?|deeds?|joints?|judges?|judging|whoever|house rules?|front doors?)\b",
    re.IGNORECASE,
)


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PODWIRE.rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


@pytest.fixture(scope="module")
def trees() -> list[tuple[Path, ast.Module]]:
    return list(modules())


def log_messages(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Yields calls such as `log.info("…")` with their constant message."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=value, attr=level),
                args=[ast.Constant(value=str() as message), *_],
            ) if level in LEVELS and "log" in ast.unparse(value).lower():
                yield node, message


def test_log_messages_have_at_least_three_words(trees):
    short = {
        where(path, call): message
        for path, tree in trees
        for call, message in log_messages(tree)
        if len(message.split()) < 3 and message not in SHORT_LOG_MESSAGES
    }
    assert short == {}


def test_log_messages_are_unique_within_a_package(trees):
    counts: Counter[str] = Counter()
    for path, tree in trees:
        package = path.relative_to(PODWIRE).parts[0]
        counts.update(f"{package}: {message}" for _, message in log_messages(tree))
    assert {text: n for text, n in counts.items() if n > 1 and text not in REPEATED_LOG_MESSAGES} == {}


def error_texts(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yields the texts below `raise …`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            for part in ast.walk(node.exc):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part, part.value


def test_error_texts_say_what_a_value_must_be(trees):
    negations = {
        where(path, node): text
        for path, tree in trees
        for node, text in error_texts(tree)
        if NEGATION.search(text) and text not in NEGATIONS
    }
    assert negations == {}


def test_no_function_is_named_told(trees):
    functions = [
        where(path, node)
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.strip("_") == "told"
    ]
    assert functions == []


def test_docstrings_do_not_open_with_a_free_relative(trees):
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    opened = {
        where(path, node): docstring.split("\n")[0]
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, documented)
        and (docstring := ast.get_docstring(node))
        and FREE_RELATIVE.match(docstring)
        and not docstring.startswith(tuple(FREE_RELATIVES) or ("\0",))
    }
    assert opened == {}


def test_docstrings_of_tests_do_not_open_with_a_free_relative():
    """Reads lines instead of syntax trees, which would take longer than all other checks together."""
    opened = [
        f"{named(path)}:{number}"
        for place in ("tests", "benchmarks")
        for path in sources(ROOT / place)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if FREE_RELATIVE.match(line.lstrip().removeprefix('"""')) and line.lstrip().startswith('"""')
    ]
    assert opened == []


def test_metaphors_are_replaced_by_the_terms_of_the_field():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for place in (PODWIRE, ROOT / "tests", ROOT / "benchmarks"):
        pages += [path for suffix in ("md", "py", "yaml") for path in place.rglob(f"*.{suffix}")]
    metaphors = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in pages
        if path.name not in ("glossary.md", "CHANGELOG.md") and path != Path(__file__)
        for line in path.read_text(encoding="utf-8").splitlines()
        if METAPHOR.search(line)
    }
    assert metaphors - set(METAPHORS) == set()
