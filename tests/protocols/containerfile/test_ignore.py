"""Patterns of ignore files."""

import pytest

from podwire.protocols.containerfile import IgnorePatterns
from podwire.protocols.containerfile.ignore import BadPattern


@pytest.mark.parametrize(
    ("lines", "ignored", "kept"),
    [
        (["# comment", "", "*.md"], ["a.md"], ["sub/a.md", "a.mdx"]),
        (["**/*.o"], ["a.o", "x/y/a.o"], ["a.c"]),
        (["node_modules"], ["node_modules", "node_modules/x/y"], ["sub/node_modules"]),
        (["/build/"], ["build/x"], ["sub/build"]),
        (["*", "!src"], ["a", "b/c"], ["src", "src/x"]),
        (["docs", "!docs/a.md"], ["docs/b.md"], ["docs/a.md"]),
        (["!a", "a"], ["a"], []),
        (["a?[bc]", r"\*x"], ["a1b", "*x"], ["a1d", "yx", "a/b"]),
        (["a/**"], ["a/b", "a/b/c"], ["a", "b"]),
        (["x/../y"], ["y"], ["x"]),
    ],
)
def test_the_last_pattern_that_matches_decides(lines, ignored, kept):
    patterns = IgnorePatterns(lines)
    assert [path for path in ignored if not patterns.ignores(path)] == []
    assert [path for path in kept if patterns.ignores(path)] == []


def test_a_wrong_pattern_is_named():
    with pytest.raises(BadPattern, match="bracket"):
        IgnorePatterns(["ok", "a[b"])
