"""Devices in a whole cluster: the way of a pod that gets two is the flow as it is drawn; a reboot is survived."""

import contextlib
import json

import pytest

from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.runtime.images.build import ROOT_REFERENCE
from tests.kubelet.devices import conftest as plugins

NIC = "example.org/nic"
pytestmark = pytest.mark.timeout(400)


def pod(name, count):
    container = {
        "name": "main",
        "image": ROOT_REFERENCE,
        "command": ["sleep", "100000"],
        "resources": {"limits": {NIC: str(count)}},
    }
    common = {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": common}


@contextlib.contextmanager
def plugin_of(cluster, *devices):
    made = plugins.DevicePlugin(cluster.prefix / "var/lib/kubelet/device-plugins", NIC, devices)
    made.answer = lambda ids: pb.ContainerAllocateResponse(envs={"NICS": " ".join(ids)})
    try:
        yield comes(cluster, made)
    finally:
        made.kill()


def comes(cluster, plugin):
    """It serves and registers, and does so again when a kubelet that starts has removed its socket."""
    plugin.kill()
    plugin.socket.unlink(missing_ok=True)

    def taken():
        if not plugin.socket.exists():
            plugin.kill()
            plugin.serve().register()
        found = cluster.get("nodes", "node-1")
        return found and found["status"]["allocatable"].get(NIC) == str(len(plugin.devices))

    cluster.eventually(taken, "the devices are there")
    return plugin


def inside(cluster, name):
    return cluster.output("exec", name, "--", "sh", "-c", "echo $NICS").split()


def test_the_trace_of_a_pod_with_two_devices_matches_the_flow(cluster):
    cluster.up()
    with plugin_of(cluster, "a", "b", "c"):
        cluster.apply(pod("web", 2))
        cluster.running(1)
        assert inside(cluster, "web") == ["a", "b"]
        done = cluster.podwire("trace", "web", "--check", "device-plugin")
        assert (done.returncode, done.stdout) == (0, "pod default/web: no deviations from the device-plugin flow\n"), (
            done.stdout + done.stderr + cluster.podwire("trace", "web").stdout
        )
        assert cluster.podwire("trace", "web", "--check", "pod").returncode == 0
        records = json.loads(cluster.podwire("trace", "web", "--format", "json").stdout)
        (asked,) = [record for record in records if record["method"] == "Allocate" and "request" in record["detail"]]
        assert asked["detail"]["request"] == {"container_requests": [{"devices_ids": ["a", "b"]}]}
        cluster.delete_all()
    cluster.down()


def test_after_a_reboot_pods_wait_for_their_plugin_and_have_their_devices_again(cluster):
    cluster.up()
    with plugin_of(cluster, "a", "b", "c") as plugin:
        cluster.apply(pod("web", 2), pod("db", 1))
        cluster.running(2)
        before = {name: inside(cluster, name) for name in ("web", "db")}
        plugin.kill()
        cluster.reboot()
        cluster.up()

        def waiting():
            found = cluster.get("events", "--field-selector", "involvedObject.name=web,reason=WaitingForDevices")
            return found and found["items"]

        cluster.eventually(waiting, "the reason is reported", cluster.describe_pods)
        assert {pod["status"]["phase"] for pod in cluster.pods().values()} <= {"Running", "Pending"}
        assert not cluster.sandboxes(ready=True)
        comes(cluster, plugin)
        cluster.running(2)
        assert {name: inside(cluster, name) for name in ("web", "db")} == before
        cluster.delete_all()
    cluster.down()
