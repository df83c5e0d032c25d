"""Parameters of the network driver, shown with kubectl: an invalid one is refused when written, with its field."""

from pathlib import Path

import pytest

from tests.eventually import eventually

FEW_KUBECTLS = "they differ in nothing here but their age"

MANIFESTS = Path(__file__).parents[2] / "deploy/network-driver.yaml"
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME}
spec:
  devices:
    requests:
    - name: nic
      exactly: {deviceClassName: whole.net.podwire.dev}
    config:
    - requests: [nic]
      opaque:
        driver: net.podwire.dev
        parameters:
          apiVersion: net.podwire.dev/v1alpha1
          kind: InterfaceParameters
          PARAMETERS
"""
CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: NAME}
spec:
  config:
  - opaque:
      driver: net.podwire.dev
      parameters:
        apiVersion: net.podwire.dev/v1alpha1
        kind: InterfaceParameters
        PARAMETERS
"""
AT = "spec.devices.config[0].opaque.parameters"


def filled(manifest, name, parameters):
    return manifest.replace("NAME", name).replace("PARAMETERS", parameters)


@pytest.fixture
def deployed(kubectl):
    """All of the file is there, and its policies are in force."""
    kubectl(f"apply --namespace podwire -f {MANIFESTS}")
    wrong = filled(CLAIM, "wrong", "interface: {mtu: 1}")
    eventually(lambda: kubectl.run("create --dry-run=server -f -", given=wrong).returncode != 0)
    again = kubectl(f"apply --namespace podwire -f {MANIFESTS}").splitlines()
    assert [item for item in again if not item.endswith("unchanged")] == []
    yield
    kubectl(f"delete --namespace podwire --ignore-not-found -f {MANIFESTS}")


def test_invalid_parameters_are_refused_when_written(kubectl, deployed):
    good = "interface: {name: net1, mtu: 9000, addresses: [10.9.0.2/24]}"
    assert "resourceclaim.resource.k8s.io/good created" in kubectl("create -f -", given=filled(CLAIM, "good", good))
    for parameters, error in {
        "interface: {mtu: 1}": f"{AT}.interface.mtu: must be from 68 to 65535",
        "interface: {mut: 9000}": f"{AT}.interface.mut: is not a field",
        "interface: {name: eth0}": f"{AT}.interface.name: is reserved in every pod",
        "interface: {dhcp: true, addresses: [10.9.0.2/24]}": f"{AT}.interface.dhcp: cannot be together with addresses",
        "routes: [{destination: 10.0.0.0/8}]": f"{AT}.routes[0].gateway: is required, unless scope is link",
        "locks: [interface]": f"{AT}.locks: only a DeviceClass locks fields",
    }.items():
        assert error in kubectl.refused("create -f -", given=filled(CLAIM, "bad", parameters))
    several = kubectl.refused("create -f -", given=filled(CLAIM, "bad", "interface: {mtu: 1, name: lo}"))
    assert f"{AT}.interface.name: is reserved" in several
    assert f"{AT}.interface.mtu: must be" in several
    assert kubectl("get resourceclaims -o name").split() == ["resourceclaim.resource.k8s.io/good"]


def test_a_class_may_lock_only_known_fields_and_is_validated_like_a_claim(kubectl, deployed):
    name = kubectl.namespace
    wrong = kubectl.refused("create -f -", given=filled(CLASS, name, "locks: [interface.speed]"))
    assert "spec.config[0].opaque.parameters.locks[0]: is not a field" in wrong
    kubectl("create -f -", given=filled(CLASS, name, "locks: [interface.mtu]"))
    kubectl(f"label deviceclass {name} tier=fast")
    patch = '[{"op": "replace", "path": "/spec/config/0/opaque/parameters/locks", "value": "all"}]'
    refused = kubectl.refused(f"patch deviceclass {name} --type json -p", patch)
    assert "spec.config[0].opaque.parameters.locks: must be a list" in refused
    kubectl(f"delete deviceclass {name}")
