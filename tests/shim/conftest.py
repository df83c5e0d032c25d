"""A real container runtime under both builds of the shim: as in the wheel, and with sanitizers."""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "shim" / "podwire-shim.c"
SANITIZED = ("-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra")


def load(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


support = load("podwire_shim_support", Path(__file__).with_name("support.py"))


@pytest.fixture(scope="session")
def common(tmp_path_factory, worker_id) -> Path:
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


def compiled(common: Path, name: str, flags: tuple[str, ...]) -> Path:
    """Compiled once, by whichever worker comes first."""
    program = common / name
    with (common / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            fresh = common / f"{name}.new"
            subprocess.run(["gcc", *flags, "-o", fresh, SOURCE], check=True)
            fresh.rename(program)
    return program


@pytest.fixture(scope="session")
def build_hook():
    return load("podwire_hatch_build", ROOT / "hatch_build.py")


@pytest.fixture(scope="session")
def c_program(common, build_hook) -> Path:
    return compiled(common, "podwire-shim", build_hook.FLAGS)


@pytest.fixture(scope="session", params=["c", "sanitized"])
def shim(request, common, c_program) -> tuple[str, ...]:
    """The first words of a command line of the shim."""
    if request.param == "c":
        return (str(c_program),)
    return (str(compiled(common, "podwire-shim-sanitized", SANITIZED)),)


@pytest.fixture(scope="session", params=["crun", "runc"])
def oci(request) -> str:
    assert shutil.which(request.param), "scripts/setup installs it"
    return request.param


@pytest.fixture(scope="session")
def rootfs(tmp_path_factory) -> Path:
    busybox = shutil.which("busybox")
    assert busybox, "scripts/setup installs it"
    root = tmp_path_factory.mktemp("root")
    for name in ("bin", "proc", "sys", "dev", "tmp", "data"):
        (root / name).mkdir()
    shutil.copy(busybox, root / "bin" / "busybox")
    for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    return root


@pytest.fixture
def reports(tmp_path) -> Iterator[Path]:
    """Where the sanitizers complain; a test whose shim did, fails."""
    folder = tmp_path / "reports"
    folder.mkdir()
    yield folder
    assert [path.read_text() for path in folder.iterdir()] == []


@pytest.fixture
def boxes(shim, rootfs, reports, tmp_path) -> Iterator["support.Boxes"]:
    """Makes containers under the default runtime; whatever a test leaves behind is removed."""
    made = support.Boxes(shim, rootfs, reports, tmp_path, "crun")
    yield made
    made.sweep()


@pytest.fixture
def environment(reports) -> dict[str, str]:
    return support.environment(reports)


@pytest.fixture
def cgroups() -> Iterator[list[str]]:
    """Fresh cgroups, as the caller of a shim makes them."""
    made = support.make_cgroups(f"podwire-test-{os.getpid()}-{os.urandom(4).hex()}")
    yield [str(item) for item in made]
    support.remove_cgroups(made)


@pytest.fixture(scope="session", name="support")
def support_():
    return support
