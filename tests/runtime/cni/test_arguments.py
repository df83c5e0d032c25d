"""Devices of a pod reach the plugins that take them: the annotation of its sandbox becomes the capability deviceID."""

import pytest

from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.cni.arguments import DEVICES, capability_args, plugin_capability_args
from podwire.runtime.ports import Attachment

NIC = "example.org/nic"
HAS = {DEVICES: {NIC: ["0000:01:00.1", "0000:01:00.2"]}}


def taker(resource=NIC, **more):
    return {"type": "host-device", "resourceName": resource, "capabilities": {"deviceID": True}, **more}


def pod(text):
    return Attachment(
        id="s", netns="/run/netns/x", namespace="default", name="p", uid="u", annotations={DEVICES: text}, ports=()
    )


def test_the_devices_annotation_is_parsed():
    assert capability_args(pod(f'{{"{NIC}":["a"]}}'))[DEVICES] == {NIC: ["a"]}


def test_an_invalid_devices_annotation_is_refused():
    with pytest.raises(InvalidArgument, match=DEVICES):
        capability_args(pod("nonsense"))


@pytest.mark.parametrize(
    ("plugins", "reported"),
    [
        pytest.param([taker()], ["0000:01:00.1"], id="one"),
        pytest.param([taker(), taker()], ["0000:01:00.1", "0000:01:00.2"], id="each its own"),
        pytest.param([taker(), taker(), taker()], ["0000:01:00.1", "0000:01:00.2", None], id="more than there are"),
        pytest.param([taker("example.org/gpu")], [None], id="another resource"),
        pytest.param([taker(capabilities={}), taker()], [None, "0000:01:00.1"], id="only who asks for it"),
        pytest.param([{"type": "bridge"}], [None], id="one that takes none"),
    ],
)
def test_each_plugin_gets_its_own_device(plugins, reported):
    assert [plugin_capability_args(HAS, plugin, plugins).get("deviceID") for plugin in plugins] == reported
