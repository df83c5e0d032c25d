"""Where the driver's sockets are."""

from pathlib import Path

import pytest

from podwire.dradriver.publish.sockets import LONGEST, sockets

KUBELET = Path("/var/lib/kubelet")
UID = "0a1b2c3d-0000-4000-8000-123456789abc"


def test_one_instance_has_the_names_that_everybody_expects():
    found = sockets(KUBELET, "net.podwire.dev")
    assert str(found.dra) == "/var/lib/kubelet/plugins/net.podwire.dev/dra.sock"
    assert str(found.registration) == "/var/lib/kubelet/plugins_registry/net.podwire.dev-reg.sock"
    assert found.lock.name == "serialize.lock"


def test_an_instance_that_knows_its_pod_has_names_of_its_own():
    found, other = sockets(KUBELET, "net.podwire.dev", UID), sockets(KUBELET, "net.podwire.dev", "another")
    assert found.dra.name == f"dra-{UID}.sock"
    assert found.registration.name == f"net.podwire.dev-{UID}-reg.sock"
    assert found.lock == other.lock
    assert {found.dra, found.registration, found.chardev, found.chardev_registration}.isdisjoint(
        {other.dra, other.registration, other.chardev, other.chardev_registration}
    )


@pytest.mark.parametrize(
    ("depth", "begins"),
    [
        pytest.param(10, f"net.podwire.dev-{UID}-reg.sock", id="everything fits"),
        pytest.param(45, "net.podwire.dev-4J7TAyG-OL0", id="the pod is a digest"),
        pytest.param(53, "dra-7xcEkuh6PKrHL7POxzT8IQ-reg.sock", id="both are"),
    ],
)
def test_a_long_path_makes_the_name_shorter(depth, begins):
    """By digests as other drivers have them: raw URL base64 of SHA-256, of which eight bytes or sixteen."""
    found = sockets(Path("/" + "x" * depth), "net.podwire.dev", UID).registration
    assert found.name.startswith(begins)
    assert found.name.endswith("-reg.sock")
    assert len(str(found)) <= LONGEST
