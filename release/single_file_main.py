"""Starts podwire from one file: unpacks it into a cache directory once, as a virtual environment, and runs it there."""

import os
import platform
import shutil
import sys
import tempfile
import zipfile

PYTHON = ""
MACHINE = ""
DIGEST = ""
"""Filled in by single_file.py: what the packages were compiled for, and their checksum."""
VARIABLE = "PODWIRE_CACHE"


def cache() -> str:
    """Returns the directory for unpacked versions: only its owner may write there, because its files are executed."""
    home = "/var/cache/podwire" if os.geteuid() == 0 else os.path.expanduser("~/.cache/podwire")
    path = os.environ.get(VARIABLE) or home
    os.makedirs(path, mode=0o755, exist_ok=True)
    status = os.stat(path)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        sys.exit(f"podwire: {path}: others may write there; name another directory with {VARIABLE}")
    return path


def unpack(target: str) -> None:
    """Makes the directory, all of it or nothing."""
    staging = tempfile.mkdtemp(dir=os.path.dirname(target), prefix=".unpacking-")
    try:
        packages = os.path.join(staging, "lib", f"python{PYTHON}", "site-packages")
        os.makedirs(packages)
        os.chmod(staging, 0o755)
        with zipfile.ZipFile(sys.argv[0]) as archive:
            for entry in archive.infolist():
                head, _, name = entry.filename.partition("/")
                if head == "packages":
                    path = os.path.join(packages, name)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with archive.open(entry) as source, open(path, "wb") as file:
                        shutil.copyfileobj(source, file)
                    os.chmod(path, entry.external_attr >> 16 & 0o777)
        interpreter = os.path.realpath(sys.executable)
        os.mkdir(os.path.join(staging, "bin"))
        os.symlink(interpreter, os.path.join(staging, "bin/python3"))
        with open(os.path.join(staging, "pyvenv.cfg"), "w", encoding="utf-8") as file:
            file.write(f"home = {os.path.dirname(interpreter)}\ninclude-system-site-packages = false\n")
        script = os.path.join(staging, "bin/podwire")
        with open(script, "w", encoding="utf-8") as file:
            file.write(
                f"#!{target}/bin/python3\nimport sys\n\nfrom podwire.cli.entry import main\n\nsys.exit(main())\n"
            )
        os.chmod(script, 0o755)
        try:
            os.rename(staging, target)
        except OSError:
            if not os.path.isdir(target):  # otherwise another process was faster
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def main() -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if (version, platform.machine()) != (PYTHON, MACHINE):
        sys.exit(
            f"podwire: this file is for Python {PYTHON} on {MACHINE}, and this is Python {version} on "
            f"{platform.machine()}; run it with `python{PYTHON} {sys.argv[0]}`, or install the wheel"
        )
    try:
        target = os.path.join(cache(), DIGEST)
        if not os.path.isdir(target):
            print(f"podwire: unpacking to {target}, once", file=sys.stderr)
            unpack(target)
    except OSError as error:
        sys.exit(f"podwire: cannot unpack: {error.filename}: {error.strerror}; {VARIABLE} names another directory")
    os.execv(f"{target}/bin/podwire", ["podwire", *sys.argv[1:]])


if __name__ == "__main__":
    main()
