"""The status of a claim: who allocated what for whom, and what drivers may tell of it."""

import copy

import pytest

from podwire.kinds.strategies import strategy_of
from podwire.protocols.k8sapi.builtin import BUILTIN

KIND = BUILTIN.of_kind("resource.k8s.io/v1", "ResourceClaim")
CLAIM = {
    "metadata": {"name": "c", "namespace": "default", "uid": "u-1", "resourceVersion": "1"},
    "spec": {
        "devices": {
            "requests": [
                {"name": "nic", "exactly": {"deviceClassName": "nics", "allocationMode": "ExactCount", "count": 1}},
                {"name": "any", "firstAvailable": [{"name": "fast"}]},
            ]
        }
    },
}
RESULT = {"request": "nic", "driver": "net.example.com", "pool": "n1", "device": "eth0"}
ALLOCATION = {"devices": {"results": [RESULT]}}
CONSUMER = {"resource": "pods", "name": "p", "uid": "u"}
DEVICE = {"driver": "net.example.com", "pool": "n1", "device": "eth0"}


def errors_of(status, before=None, **metadata):
    new, old = copy.deepcopy(CLAIM), copy.deepcopy(CLAIM)
    new["status"], old["status"] = status, before or {}
    for entry in (new, old):
        entry["metadata"] |= metadata
    return [str(item) for item in strategy_of(KIND).errors_on_update(new, old, "status")]


def allocated(**changes):
    return {"allocation": {"devices": {"results": [{**RESULT, **changes}]}}}


@pytest.mark.parametrize(
    ("status", "errors"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"allocation": ALLOCATION, "reservedFor": [CONSUMER]}, [], id="allocated and reserved"),
        pytest.param(allocated(request="any/fast"), [], id="allocated for an alternative"),
        pytest.param(
            {"reservedFor": [CONSUMER]},
            ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
            id="reserved without an allocation",
        ),
        pytest.param(
            {"allocation": ALLOCATION, "reservedFor": [CONSUMER, CONSUMER, {}]},
            [
                "status.reservedFor[2].resource: Required value",
                "status.reservedFor[2].name: Required value",
                "status.reservedFor[2].uid: Required value",
                'status.reservedFor[1]: Duplicate value: "u"',
            ],
            id="reserved twice",
        ),
        pytest.param(
            allocated(request="any/slow"),
            [
                (
                    'status.allocation.devices.results[0].request: Invalid value: "any/slow": must be the name of a '
                    "request in the claim or the name of a request and a subrequest separated by '/'"
                )
            ],
            id="allocated for an alternative that is none",
        ),
        pytest.param(
            allocated(driver="", pool="", shareID="X"),
            [
                "status.allocation.devices.results[0].driver: Required value",
                "status.allocation.devices.results[0].pool: Required value",
                (
                    'status.allocation.devices.results[0].shareID: Invalid value: "X": '
                    "error validating uid: invalid UUID length: 1"
                ),
            ],
            id="a device of nobody",
        ),
        pytest.param(
            {"allocation": {"devices": {"config": [{"source": "FromMe", "opaque": {"driver": "d.e"}}]}}},
            [
                (
                    'status.allocation.devices.config[0].source: Unsupported value: "FromMe": '
                    'supported values: "FromClaim", "FromClass"'
                ),
                "status.allocation.devices.config[0].opaque.parameters: Required value",
            ],
            id="configuration",
        ),
        pytest.param(
            {"allocation": ALLOCATION, "devices": [{**DEVICE, "data": {"a": 1}}, {**DEVICE, "device": "eth9"}]},
            ['status.devices[1]: Invalid value: "net.example.com/n1/eth9": must be an allocated device in the claim'],
            id="news of a device that was not allocated",
        ),
        pytest.param(
            {"allocation": ALLOCATION, "devices": [{**DEVICE, "networkData": {"interfaceName": "n" * 257}}]},
            ["status.devices[0].networkData.interfaceName: Too long: may not be more than 256 bytes"],
            id="a long interface name",
        ),
    ],
)
def test_invalid_claim_statuses_are_rejected(status, errors):
    assert errors_of(status) == errors


CIDR_FORM = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("10.9.8.7/24", None),
        ("2001:db8::1/64", None),
        ("2001:DB8::1/64", 'must be in canonical form ("2001:db8::1/64")'),
        ("10.0.0.1", CIDR_FORM),
        ("10.0.0.1/33", CIDR_FORM),
    ],
)
def test_an_address_of_a_device_has_its_network(address, problem):
    status = {"allocation": ALLOCATION, "devices": [{**DEVICE, "networkData": {"ips": [address]}}]}
    path = "status.devices[0].networkData.ips[0]"
    assert errors_of(status) == ([f'{path}: Invalid value: "{address}": {problem}'] if problem else [])


def test_an_allocation_is_immutable_or_removed():
    (error,) = errors_of(allocated(device="eth1"), before={"allocation": ALLOCATION})
    assert error.startswith("status.allocation: Invalid value: ")
    assert error.endswith(": field is immutable")
    assert errors_of({}, before={"allocation": ALLOCATION}) == []


def test_a_claim_in_deletion_gets_no_new_consumers():
    before = {"allocation": ALLOCATION, "reservedFor": [CONSUMER]}
    more = {**before, "reservedFor": [CONSUMER, {**CONSUMER, "uid": "v"}]}
    assert errors_of(before, before, deletionTimestamp="t") == []
    assert errors_of(more, before) == []
    assert errors_of(more, before, deletionTimestamp="t") == [
        (
            "status.reservedFor: Forbidden: new entries may not be added while "
            "`deallocationRequested` or `deletionTimestamp` are set"
        )
    ]
