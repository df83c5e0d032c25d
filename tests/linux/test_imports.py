"""Short-lived programs pay for what they import: nothing here pulls in more than this."""

import subprocess
import sys
from pathlib import Path

import pytest

import podwire.linux

PACKAGE = Path(podwire.linux.__file__).parent
ALLOWED = {
    "podwire",
    # what the work needs
    *("ctypes", "errno", "fcntl", "ipaddress", "os", "select", "signal", "socket", "struct", "termios"),
    *("threading", "typing"),
    # what those need themselves
    *("collections", "contextlib", "copyreg", "enum", "functools", "genericpath", "itertools", "keyword", "operator"),
    *("posixpath", "re", "reprlib", "stat", "types", "warnings", "weakrefset"),
}
LIST = """
import sys
sys.path.insert(0, {root!r})
before = set(sys.modules)
import podwire.linux.{module}
print(*{{each.partition(".")[0].lstrip("_") for each in set(sys.modules) - before}})
print(*(each for each in sys.modules if each.startswith("podwire")))
"""


def pulled_in(module: str) -> tuple[set[str], set[str]]:
    """Modules that an import adds to a bare interpreter: packages of others, modules of ours."""
    script = LIST.format(root=str(PACKAGE.parents[1]), module=module)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    others, ours = done.stdout.splitlines()
    return set(others.split()), set(ours.split())


@pytest.mark.parametrize(
    "module", sorted(".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("[a-z]*.py"))
)
def test_a_file_is_light_to_import_and_knows_only_this_package(module):
    others, ours = pulled_in(module)
    assert others - {"collections_abc", "sre", "typing", "stat"} <= ALLOWED
    assert {our for our in ours if not our.startswith("podwire.linux")} == {"podwire"}
