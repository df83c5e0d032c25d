"""The image of podwire itself, made of this host's files: for DaemonSets of `podwire manifests`.

It has the interpreter that runs here and its standard library under their own paths, the locked run-time packages and
podwire in a virtual environment in /opt/podwire, nft, and the shared libraries that all of them need. Nothing is
downloaded. The image fits hosts with the same processor; the kernel may be another.
"""

import compileall
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePath
from py_compile import PycInvalidationMode

from podwire.cluster.image_build import make_builder
from podwire.kinds.schema.definitions import VERSION
from podwire.linux.errors import LinuxError
from podwire.linux.proc import processes
from podwire.protocols.containerfile import IgnorePatterns
from podwire.runtime.builder import BuildFailed, BuildRequest, Context
from podwire.runtime.images import Image, Images
from podwire.runtime.images.build import ROOT_REFERENCE, build_root
from podwire.shim import ShimMissing, find_forwarder, find_shim

PODWIRE_REFERENCE = "podwire.local/podwire:latest"
HOME = Path("opt/podwire")
PROGRAMS = ("nft",)
"""Programs of the host that components of podwire run in pods."""
NOT_NEEDED = (
    "__pycache__", "config-*", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages",
    "dist-packages", "test", "tests", "tkinter", "turtledemo",
)  # fmt: skip
"""Directories of the standard library that podwire does not import."""
SCHEMAS = "kubernetes-json-schema"
"""A directory with the definitions of many versions of Kubernetes, of which one is read."""
LDD_SECONDS = 60.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LIBRARY = re.compile(r"\s(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_MISSING = re.compile(r"^\s*(\S+) => not found$", re.MULTILINE)
_ELF = b"\x7fELF"
_BATCH = 100
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}

Report = Callable[[str], None]


def build_podwire_image(
    images: Images, report: Report, *, reference: str = PODWIRE_REFERENCE, archive: Path | None = None
) -> Image:
    """Builds the image from the files of this host; `archive` is an OCI archive to write, too.

    Raises BuildFailed, ImageError, OSError.
    """
    if images.status(ROOT_REFERENCE) is None:
        build_root(images)
    with images.stage() as context:
        root = context / "root"
        report("copying Python, podwire and what they need")
        _copy_interpreter(root)
        _copy_packages(root / HOME)
        _copy_programs(root)
        _copy_libraries(root)
        report("compiling modules")
        _compile(root)
        text = (
            f'FROM {ROOT_REFERENCE}\nCOPY root/ /\nENV PATH=/{HOME}/bin:$PATH\nENTRYPOINT ["podwire"]\nCMD ["--help"]\n'
        )
        opened = Context(context, IgnorePatterns(), images.limits)
        try:
            request = BuildRequest(text=text, file="podwire image", context=opened, names=(reference,), archive=archive)
            image = make_builder(images, report).build(request)
        finally:
            opened.close()
    if image is None:
        raise BuildFailed(f"{reference} was not built")
    return image


def _interpreter() -> Path:
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _copy_interpreter(root: Path) -> None:
    """Copies the interpreter and its library under their own paths, and makes a virtual environment of it."""
    interpreter = _interpreter()
    _copy(interpreter, root)
    for library in {Path(sysconfig.get_path(name, vars=_base())) for name in ("stdlib", "platstdlib")}:
        _copy_tree(library, root / library.relative_to("/"), skip=NOT_NEEDED)
    (root / HOME / "bin").mkdir(parents=True)
    (root / HOME / "bin/python3").symlink_to(interpreter)
    (root / HOME / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\ninclude-system-site-packages = false\n")


def _base() -> dict[str, str]:
    return {"base": sys.base_prefix, "platbase": sys.base_exec_prefix, "installed_base": sys.base_prefix}


def _copy_packages(home: Path) -> None:
    """Copies podwire, its run-time dependencies, its compiled programs and a script that starts it."""
    packages = home / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    for dependency in _dependencies("podwire"):
        for file in dependency.files or ():
            if _is_needed(file):
                _copy_file(Path(str(file.locate())), packages / file)
    _copy_tree(Path(__file__).parents[1], packages / "podwire", skip=("__pycache__",))
    try:
        for program in (find_shim(), find_forwarder()):
            if program is not None:
                shutil.copy2(program, home / "bin" / program.name)
    except ShimMissing as error:
        raise BuildFailed(str(error)) from error
    script = home / "bin/podwire"
    script.write_text(f"#!/{HOME}/bin/python3\nimport sys\n\nfrom podwire.cli.entry import main\n\nsys.exit(main())\n")
    script.chmod(0o755)


def _dependencies(name: str) -> Iterator[Distribution]:
    """Yields a package and all that it needs at run time, each once."""
    seen, waiting = set[str](), [name]
    while waiting:
        name = waiting.pop()
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # required on other platforms only: pip installed all that this one needs
        seen.add(name)
        yield package
        for requirement in package.requires or ():
            required, marker = _NAME.match(requirement), requirement.partition(";")[2]
            if required and "extra ==" not in marker:
                other = re.sub(r"[-_.]+", "-", required[0]).lower()
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)


def _is_needed(file: PurePath) -> bool:
    if ".." in file.parts or "__pycache__" in file.parts or file.suffix == ".pth":
        return False
    return SCHEMAS not in file.parts or file.match(f"v{VERSION}-local/_definitions.json")


def _copy_programs(root: Path) -> None:
    for name in PROGRAMS:
        program = shutil.which(name, path=_ENVIRONMENT["PATH"])
        if program is None:
            raise BuildFailed(f"{name} is not installed on this host; on Debian: apt-get install nftables")
        _copy_file(Path(program).resolve(), root / "bin" / name)


def _copy_libraries(root: Path) -> None:
    """Copies the shared libraries that programs and modules in `root` need, under their own paths."""
    programs = [str(path) for path in root.rglob("*") if path.is_file() and not path.is_symlink() and _is_elf(path)]
    wanted = set[str]()
    for start in range(0, len(programs), _BATCH):
        wanted |= set(_needed(programs[start : start + _BATCH]))
    for library in sorted(wanted):
        if not Path(library).is_relative_to(root):
            _copy_file(Path(library), root / library.lstrip("/"))


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_ELF)) == _ELF


def _needed(programs: list[str]) -> Iterable[str]:
    try:
        done = processes.run(["ldd", *programs], env=_ENVIRONMENT, deadline=LDD_SECONDS)
    except LinuxError as error:
        raise BuildFailed(str(error)) from error
    output = done.stdout.decode("utf-8", "replace")
    if missing := sorted(set(_MISSING.findall(output))):
        raise BuildFailed(f"shared libraries are missing on this host: {', '.join(missing)}")
    return _LIBRARY.findall(output)


def _compile(root: Path) -> None:
    """Compiles all modules, so that a start in a pod, whose layers have no times, need not."""
    with redirect_stdout(sys.stderr):
        compileall.compile_dir(
            root, maxlevels=50, quiet=2, stripdir=str(root), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
        )


def _copy(path: Path, root: Path) -> None:
    _copy_file(path, root / path.relative_to("/"))


def _copy_file(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def _copy_tree(path: Path, target: Path, skip: tuple[str, ...]) -> None:
    shutil.copytree(path, target, symlinks=False, ignore=shutil.ignore_patterns(*skip), dirs_exist_ok=True)
