import re
import subprocess
import sys
from pathlib import Path

import podwire.linux

PACKAGE = Path(podwire.linux.__file__).parent
README = (PACKAGE / "README.md").read_text()


def test_readme_has_the_four_sections():
    assert re.findall(r"^## (.+)$", README, re.MULTILINE) == ["What it does", "Speaks", "Files", "Try it"]


def test_the_example_works():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0.0.0.0/0 10.1.0.1\n10.1.0.0/24 None\n"


def test_readme_lists_every_file():
    section = re.split(r"^## ", README, flags=re.MULTILINE)[3]
    result = set(re.findall(r"`([a-z0-9_]+(?:\.py|/))`", section))
    there = {path.name for path in PACKAGE.glob("*.py")} | {
        f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")
    }
    assert result == there - {"__init__.py"}
