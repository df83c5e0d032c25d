"""The hook that keeps a container from starting without the interfaces that its pod claimed."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from podwire.linux.proc.namespaces import KernelNamespaces


def check(shim, environment, file, state):
    text = state if isinstance(state, str) else json.dumps(state)
    done = subprocess.run(
        [*shim, "attached", str(file)],
        input=text,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def own_namespace() -> str:
    space = Path(f"/proc/{os.getpid()}/ns/net").stat()
    return f"{space.st_dev}:{space.st_ino}"


def oci_state(pid, **more):
    return {"ociVersion": "1.0.2", "id": "c", "status": "creating", "pid": pid, "bundle": "/b", **more}


@pytest.fixture
def attached(tmp_path):
    file = tmp_path / "pod"
    file.write_text(own_namespace() + "\n")
    return file


STATES = {
    "a plain state": oci_state,
    "annotations that speak of another": lambda pid: oci_state(
        pid, annotations={"pid": "1", "x": '{"pid":1}', "y\\": '"pid":1'}
    ),
    "another pid further inside, and first": lambda pid: {"annotations": {"pid": 1}, "list": [{"pid": 1}], "pid": pid},
    "spaces": lambda pid: f'{{ "id" : "c" ,\n\t"pid" : {pid} }}',
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_a_container_in_the_namespace_of_the_file_may_start(shim, environment, attached, state):
    assert check(shim, environment, attached, state(os.getpid())) == (0, "")


def check_link(shim, environment, name, state):
    command = [*shim, "has-link", name]
    done = subprocess.run(
        command, input=json.dumps(state), env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stderr


def test_a_container_whose_namespace_has_the_link_may_start(shim, environment):
    assert check_link(shim, environment, "lo", oci_state(os.getpid())) == (0, "")
    code, error = check_link(shim, environment, "nic0", oci_state(os.getpid()))
    assert code == 1
    assert error == "podwire-shim: has-link: the network namespace of the pod does not have the device's link nic0\n"


def test_a_link_is_not_looked_for_without_a_process(shim, environment):
    assert check_link(shim, environment, "lo", {})[0] == 1
    assert check_link(shim, environment, "lo", oci_state(2**22 + 1))[0] == 1
    assert check_link(shim, environment, "longer-than-any-link", oci_state(os.getpid()))[0] == 2


WRONG = {
    "no state": ("", "stdin is not an OCI state with a pid"),
    "no JSON": ('{"pid', "stdin is not an OCI state with a pid"),
    "no pid": ({"id": "c"}, "stdin is not an OCI state with a pid"),
    "no process": (oci_state(2**22 + 1), "process 4194305: No such file or directory"),
    "a text for a pid": ({"pid": "12"}, "stdin is not an OCI state with a pid"),
}


@pytest.mark.parametrize(("state", "why"), WRONG.values(), ids=WRONG)
def test_a_state_without_a_process_starts_nothing(shim, environment, attached, state, why):
    assert check(shim, environment, attached, state) == (1, f"podwire-shim: attached: {why}\n")


def test_without_the_file_the_container_does_not_start(shim, environment, tmp_path):
    code, error = check(shim, environment, tmp_path / "pod", oci_state(os.getpid()))
    assert code == 1
    assert error == (
        "podwire-shim: attached: the pod's claimed network interfaces are not attached: "
        f"{tmp_path}/pod: No such file or directory\n"
    )


def test_an_empty_file_starts_nothing(shim, environment, tmp_path):
    (tmp_path / "pod").touch()
    code, error = check(shim, environment, tmp_path / "pod", oci_state(os.getpid()))
    assert (code, error.endswith("it is empty\n")) == (1, True)


@pytest.mark.parametrize("text", ["1:2\n", "nothing of the kind", "\n"])
def test_a_container_in_another_namespace_does_not_start(shim, environment, tmp_path, text):
    (tmp_path / "pod").write_text(text)
    code, error = check(shim, environment, tmp_path / "pod", oci_state(os.getpid()))
    assert code == 1
    assert re.fullmatch(r"podwire-shim: .* and this container is in \d+:\d+\n", error)


@pytest.fixture
def netns(tmp_path):
    namespaces = KernelNamespaces(tmp_path / "netns")
    yield Path(namespaces.create("pod").path)
    namespaces.remove("pod")


def with_hook(box, shim, file, netns):
    """A container that joins a network, as containers of a pod do."""
    config = box.bundle / "config.json"
    spec = json.loads(config.read_text())
    spec["hooks"] = {"createRuntime": [{"path": shim[0], "args": [*shim, "attached", str(file)], "timeout": 30}]}
    for namespace in spec["linux"]["namespaces"]:
        if namespace["type"] == "network":
            namespace["path"] = str(netns)
    config.write_text(json.dumps(spec))
    return box


def test_the_hook_stops_a_container_without_its_claimed_interfaces(
    shim, rootfs, reports, tmp_path, oci, support, netns
):
    boxes = support.Boxes(shim, rootfs, reports, tmp_path, oci)
    file = tmp_path / "attached"
    try:
        refused = with_hook(boxes.box("true"), shim, file, netns).run()
        assert refused.result.returncode == 1
        space = netns.stat()
        file.write_text(f"{space.st_dev}:{space.st_ino}\n")
        started = with_hook(boxes.box("true"), shim, file, netns).run()
        assert started.result.returncode == 0, started.result.stderr
    finally:
        boxes.sweep()
