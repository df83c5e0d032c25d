import subprocess
import sys
from pathlib import Path

import pytest

from podwire.cluster.up.layout import Layout
from podwire.cluster.up.node_mounts import FIRST_STATE, OWN, STANDARD, Cover, covers, hides, masked, sources

EVERYTHING = {"etc", "opt", "run", "var/lib", "var/log", "var", ""}


def planned(there=EVERYTHING, prefix="/tmp/pw"):
    found = covers(sources(Layout(Path(prefix)), "node-1"), lambda base: base in there)
    return {item.base: set(item.shown) for item in found}


def test_standard_paths_are_mounted_below_lasting_directories():
    assert planned() == {
        "etc": {"etc/cdi", "etc/cni/net.d", "etc/nri/conf.d", "etc/podwire"},
        "opt": {"opt/cni/bin", "opt/nri/plugins"},
        "run": {"run/cdi", "run/netns", "run/nri", "run/podwire"},
        "var/lib": {"var/lib/cni", "var/lib/kubelet", *(f"var/lib/podwire/{name}" for name in FIRST_STATE)},
        "var/log": {"var/log/containers", "var/log/pods", "var/log/podwire"},
    }


@pytest.mark.parametrize(
    ("there", "path", "base"),
    [
        pytest.param(EVERYTHING | {"etc/cni"}, "etc/cni/net.d", "etc/cni", id="the host has a folder for CNI"),
        pytest.param(EVERYTHING - {"opt"}, "opt/cni/bin", "", id="the host has no /opt: its root is covered"),
        pytest.param(EVERYTHING - {"var/log"}, "var/log/pods", "var", id="the host has no /var/log"),
    ],
)
def test_the_deepest_directory_that_is_there_is_covered(there, path, base):
    assert path in planned(there)[base]


@pytest.mark.parametrize("prefix", ["/", "/tmp/pw"])
def test_the_first_node_shares_directories_with_the_cluster_but_not_its_secrets(prefix):
    layout = Layout(Path(prefix))
    shown = sources(layout, "node-1")
    below = Path("/var/lib/podwire/nodes/node-1") if layout.is_default else layout.prefix
    assert shown["etc/cni/net.d"] == below / "etc/cni/net.d"
    secrets = (layout.kubeconfig, layout.control_identity("scheduler"), layout.record, layout.homes, layout.logs)
    for secret in (*secrets, layout.state / "apiserver/pki"):
        assert not any(secret.is_relative_to(source) for source in shown.values()), secret
    assert Path("/run/podwire/components") in masked(layout, "node-1")
    for secret in (*secrets, layout.state / "apiserver/pki"):
        is_masked = any(secret.is_relative_to(path) for path in masked(layout, "node-2"))
        assert is_masked is (prefix != "/"), "at / the node has directories of its own in their place"


@pytest.mark.parametrize("prefix", ["/", "/tmp/pw"])
def test_a_second_node_shares_only_images_plugins_and_the_collector(prefix):
    shown = sources(Layout(Path(prefix)), "node-2")
    below = Path(prefix, "var/lib/podwire/nodes/node-2")
    shared = {"run/podwire/trace", "var/lib/podwire/cni/bin", "var/lib/podwire/images"}
    assert {item: shown[item] for item in (*STANDARD, *OWN)} == {item: below / item for item in (*STANDARD, *OWN)}
    assert set(shown) == {*STANDARD, *OWN, *shared}
    assert shown["run/podwire/trace"] == Path(prefix, "run/podwire/trace")
    assert shown["var/lib/podwire/images"] == Path(prefix, "var/lib/podwire/images")
    for cover in covers(shown, lambda base: base in EVERYTHING):
        paths = list(cover.shown)
        inner = [(one, other) for one in paths for other in paths if other.startswith(f"{one}/")]
        assert all(paths.index(one) < paths.index(other) for one, other in inner), "what is within comes later"


@pytest.mark.parametrize(
    ("base", "name", "replaced"),
    [
        ("run", "podwire", True),
        ("run", "netns", True),
        ("run", "containerd", True),
        ("run", "dbus", False),
        ("", "run", True),
    ],
)
def test_own_paths_and_other_runtimes_are_not_shown_again(base, name, replaced):
    cover = Cover(base, {"run/podwire": Path("/x"), "run/netns": Path("/y")}, frozenset({"run/containerd"}))
    assert cover.replaced(name) is replaced


COMPOSE = """
import os, sys
from pathlib import Path
from podwire.cluster.up.node_mounts import Cover, compose
from podwire.linux.proc import mount_namespaces
from podwire.linux.fs.mounts import KernelMounts

mount_namespaces.unshare_mounts()
KernelMounts().set_propagation("/", "rprivate")
base = sys.argv[1].lstrip("/")
shown = {f"{base}/cni/net.d": Path(sys.argv[2])}
compose([Cover(base, shown, frozenset({f"{base}/hidden"}))])
for each in sorted(Path("/", base).rglob("*")):
    print(each.relative_to(f"/{base}"), f"-> {os.readlink(each)}" if each.is_symlink() else "")
Path("/", base, "cni/net.d/made-here").touch()
Path("/", base, "folder/also").touch()
"""


def test_a_covered_directory_shows_old_entries_and_those_of_the_node(tmp_path):
    base, own = tmp_path / "base", tmp_path / "own"
    for item in (base / "folder/inner", base / "hidden", own):
        item.mkdir(parents=True)
    (base / "file").write_text("x")
    (base / "link").symlink_to("file")
    (own / "10.conflist").touch()
    done = subprocess.run(
        [sys.executable, "-c", COMPOSE, str(base), str(own)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [" ".join(line.split()) for line in done.stdout.splitlines()] == [
        "cni", "cni/net.d", "cni/net.d/10.conflist", "file", "folder", "folder/inner", "link -> file",
    ]  # fmt: skip
    assert sorted(path.name for path in own.iterdir()) == ["10.conflist", "made-here"]
    assert sorted(path.name for path in base.iterdir()) == ["file", "folder", "hidden", "link"], (
        "nothing is made on the host's disk"
    )
    assert (base / "folder/also").exists(), "what is shown again is the same"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/etc/nri/conf.d/more", True),
        ("/var/lib/podwire", True),
        ("/tmp/pw/etc/manifests", True),
        ("/etc/kubernetes/manifests", False),
        ("/tmp/pw/manifests", False),
        ("/tmp/pwx", False),
    ],
)
def test_a_node_hides_directories_that_it_has_for_itself(path, expected):
    assert hides(Layout(Path("/tmp/pw")), Path(path)) == expected
