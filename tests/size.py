"""Measures the tables of "Size and depth" in docs/architecture.md: `.venv/bin/python -m tests.size`.

Generated code does not count. A private function has one leading underscore; its callers are the places of its own
module that name it. A small module is one of at most 40 lines that is not an `__init__.py`.
"""

import ast
import sys
from collections import Counter
from pathlib import Path

PODWIRE = Path(__file__).parents[1] / "podwire"
SMALL = 40


def private_functions(tree: ast.Module) -> tuple[int, int]:
    """Returns how many private functions a module has, and how many of them one place names."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    private = {node.name for node in functions if node.name.startswith("_") and not node.name.startswith("__")}
    uses: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            uses[node.id] += 1
        elif isinstance(node, ast.Attribute):
            uses[node.attr] += 1
    return len(private), sum(uses[name] == 1 for name in private)


def main() -> None:
    files, lines = Counter[str](), Counter[str]()
    private = single = small = 0
    for path in PODWIRE.rglob("*.py"):
        if path.name.endswith("_pb2.py"):
            continue
        text = path.read_text(encoding="utf-8")
        package, length = path.relative_to(PODWIRE).parts[0], len(text.splitlines())
        files[package] += 1
        lines[package] += length
        small += length <= SMALL and path.name != "__init__.py"
        counted = private_functions(ast.parse(text))
        private, single = private + counted[0], single + counted[1]
    rows = [f"{package}: {files[package]:,}, {lines[package]:,}" for package in sorted(files) if "." not in package]
    rows += [
        f"all of podwire/: {files.total():,}, {lines.total():,}",
        f"private functions, of which with one caller: {private:,}, {single:,} ({single / private:.0%})",
        f"modules of at most {SMALL} lines: {small}",
    ]
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
