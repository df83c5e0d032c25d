import re
import subprocess
import sys
from pathlib import Path

import podwire.store

README = Path(podwire.store.__file__).with_name("README.md").read_text()


def test_the_example_works(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[(2, Item(key='/registry/pods/default/web'")


def test_every_file_is_listed():
    package = Path(podwire.store.__file__).parent
    files = {str(path.relative_to(package)) for path in package.rglob("*.py") if path.name != "__init__.py"}
    listed = set(re.findall(r"`([a-z_/]+\.py)`", README.split("## Files")[1].split("## Try it")[0]))
    assert listed == {name for name in files if not name.endswith("_pb2.py")}
