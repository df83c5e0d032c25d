"""Makes podwire as one file (a zipapp), for machines with Python and without pip.

    single_file.py WHEEL ARCHITECTURE OUTPUT

The file contains the wheel and the locked run-time packages for one architecture and one version of Python, because
some of them are compiled. Shared libraries cannot be loaded from a zip file, so it unpacks itself once: __main__ is
`single_file_main.py`. The same input gives the same bytes.
"""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "3.11"
"""The Python version of Debian 12."""
GLIBC = ("2_28", "2_27", "2_17", "2_12", "2_5")
"""Versions of manylinux that Debian 12 has, newest first."""
SCHEMAS = "kubernetes-json-schema"
"""A directory with the definitions of many versions of Kubernetes, of which one is read."""


def install(wheel: Path, architecture: str, target: Path) -> None:
    """Puts the wheel and the locked run-time packages for an architecture into a directory."""
    platforms = [f"--platform=manylinux_{glibc}_{architecture}" for glibc in GLIBC]
    platforms += [f"--platform=manylinux2014_{architecture}"]
    options = ["--no-deps", "--only-binary=:all:", "--no-compile", "--quiet", f"--python-version={PYTHON}"]
    command = [sys.executable, "-m", "pip", "install", *options, *platforms, "--implementation=cp"]
    lock = ROOT / "requirements/runtime.lock"
    subprocess.run([*command, f"--target={target}", "--require-hashes", "-r", lock], check=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    for program in ("podwire-shim", "podwire-cni"):
        (target / "podwire/shim" / program).chmod(0o755)
    _drop_what_is_not_read(target)


def _drop_what_is_not_read(target: Path) -> None:
    """Removes programs, which name the interpreter of this machine, and schemas of other versions of Kubernetes."""
    shutil.rmtree(target / "bin", ignore_errors=True)
    for record in target.glob("*.dist-info/RECORD"):
        record.unlink()
    sys.path.insert(0, str(ROOT))
    from podwire.kinds.schema.definitions import VERSION  # noqa: PLC0415 - of the tree, not of what pip installed

    for file in target.rglob(f"{SCHEMAS}/**/*"):
        if file.is_file() and not file.match(f"v{VERSION}-local/_definitions.json"):
            file.unlink()


def write(tree: Path, output: Path, architecture: str) -> None:
    """Writes the files of a directory as a zipapp, in the order of names and with one time."""
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(tree)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    main = (ROOT / "release/single_file_main.py").read_text(encoding="utf-8")
    for name, value in {"PYTHON": PYTHON, "MACHINE": architecture, "DIGEST": digest.hexdigest()[:16]}.items():
        main = main.replace(f'{name} = ""', f'{name} = "{value}"')
    with output.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            _add(archive, "__main__.py", main.encode(), executable=False)
            for path in files:
                executable = bool(path.stat().st_mode & stat.S_IXUSR)
                _add(archive, f"packages/{path.relative_to(tree)}", path.read_bytes(), executable=executable)
    output.chmod(0o755)


def _add(archive: zipfile.ZipFile, name: str, content: bytes, *, executable: bool) -> None:
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    archive.writestr(entry, content)


def main() -> None:
    wheel, architecture, output = sys.argv[1:]
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "packages"
        install(Path(wheel), architecture, tree)
        write(tree, Path(output), architecture)


if __name__ == "__main__":
    main()
