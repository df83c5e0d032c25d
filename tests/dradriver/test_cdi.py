"""CDI files of claims, and files about their devices."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from podwire.dradriver.claims.allocations import ClaimRef
from podwire.dradriver.claims.cdi import CdiFiles, Mount, RequestEdits, device_id, spec, variable
from podwire.dradriver.claims.metadata import DeviceMetadata, MetadataFiles
from podwire.dradriver.publish.claim_status import Network
from podwire.runtime.cdi import Registry

UID = "0a1b2c3d-0000-4000-8000-123456789abc"
CLAIM = ClaimRef(namespace="default", name="lan", uid=UID)
PARTS = (
    RequestEdits(request="nic", env={"A": "net1"}, mounts=(Mount(host="/h", container="/c"),)),
    RequestEdits(request="other"),
)


@pytest.fixture
def files(tmp_path):
    return CdiFiles(tmp_path / "cdi", ("/bin/shim",), kept=tmp_path / "kept")


def test_runtime_finds_the_cdi_device_that_the_kubelet_names(tmp_path, files):
    files.write(UID, PARTS, tmp_path / "attached")
    edits = Registry([tmp_path / "cdi"]).resolve([device_id(UID, "nic")])
    assert edits["env"] == ["A=net1"]
    assert [mount["containerPath"] for mount in edits["mounts"]] == ["/c"]
    (hook,) = edits["hooks"]
    assert (hook["hookName"], hook["path"]) == ("createRuntime", "/bin/shim")
    assert list(hook["args"]) == ["/bin/shim", "attached", str(tmp_path / "attached")]


def test_the_hook_is_there_also_for_a_request_that_brings_nothing(tmp_path, files):
    files.write(UID, PARTS, tmp_path / "attached")
    assert Registry([tmp_path / "cdi"]).resolve([device_id(UID, "other")])["hooks"]


def test_the_same_again_is_not_written_again(tmp_path, files):
    files.write(UID, PARTS, tmp_path / "attached")
    (path,) = (tmp_path / "cdi").iterdir()
    before = path.stat().st_ino  # what is written is a new file
    files.write(UID, PARTS, tmp_path / "attached")
    assert path.stat().st_ino == before
    files.write(UID, PARTS[:1], tmp_path / "attached")
    assert path.stat().st_ino != before


def test_after_a_boot_cdi_files_are_restored_and_orphans_removed(tmp_path, files):
    for item in ("one", "two"):
        files.write(item, PARTS, tmp_path / "attached")
    for item in (tmp_path / "cdi").iterdir():
        item.unlink()
    files.keep_only({"one"})
    assert [path.name for path in (tmp_path / "cdi").iterdir()] == ["net.podwire.dev-claim@one.json"]
    files.keep_only(set())
    assert list((tmp_path / "cdi").iterdir()) == []
    files.remove("never there")


@pytest.mark.parametrize(
    ("request_", "name"), [("nic", "PODWIRE_NIC_INTERFACES"), ("gpu-0.fast", "PODWIRE_GPU_0_FAST_INTERFACES")]
)
def test_variables_are_such_as_shells_take(request_, name):
    assert variable(request_, "INTERFACES") == name


def test_the_version_is_the_oldest_that_knows_all_of_it(tmp_path):
    assert spec(UID, PARTS, ("/bin/shim",), tmp_path)["cdiVersion"] == "0.5.0"


def test_metadata_file_describes_devices_and_their_network(tmp_path):
    files = MetadataFiles(tmp_path)
    network = Network(interface="net1", mac="02:00:00:00:00:01", ips=("10.0.0.1/24",))
    described = DeviceMetadata(pool="node-1", device="lan1", attributes={"mtu": {"int": 1500}}, network=network)
    files.write(CLAIM, "nic", [DeviceMetadata(pool="node-1", device="lan1", attributes={})])
    path = files.write(CLAIM, "nic", [described])
    assert files.write(CLAIM, "nic", [described]) == path
    output = json.loads(path.read_text())
    assert output["metadata"] == {"name": "lan", "namespace": "default", "uid": UID, "generation": 2}
    (device,) = output["requests"][0]["devices"]
    assert device["networkData"] == {
        "interfaceName": "net1",
        "hardwareAddress": "02:00:00:00:00:01",
        "ips": ["10.0.0.1/24"],
    }
    files.remove(CLAIM)
    files.remove(CLAIM)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("pod_claim", "where"), [("", "resourceclaims/lan"), ("wire", "resourceclaimtemplates/wire")], ids=["own", "made"]
)
def test_containers_find_it_by_the_name_that_their_pod_has_for_the_claim(tmp_path, pod_claim, where):
    mount = MetadataFiles(tmp_path).mount(CLAIM, "nic", pod_claim)
    root = "/var/run/kubernetes.io/dra-device-attributes"
    assert mount.container == f"{root}/{where}/nic/net.podwire.dev-metadata.json"


def test_mounted_metadata_file_shows_later_changes(tmp_path):
    files = MetadataFiles(tmp_path)
    long = Network(interface="net1", mac="02:00:00:00:00:01", ips=("192.168.100.100/24",))
    path = files.write(CLAIM, "nic", [DeviceMetadata(pool="node-1", device="lan1", attributes={}, network=long)])
    with path.open("rb") as opened:
        files.write(CLAIM, "nic", [DeviceMetadata(pool="node-1", device="lan1", attributes={})])
        assert json.loads(opened.read())["requests"][0]["devices"] == [
            {"driver": "net.podwire.dev", "pool": "node-1", "name": "lan1"}
        ]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"metadata": {"uid": "another", "generation": 7}}'])
def test_damaged_or_foreign_metadata_file_is_replaced(tmp_path, damage):
    files = MetadataFiles(tmp_path)
    described = [DeviceMetadata(pool="node-1", device="lan1", attributes={})]
    path = files.write(CLAIM, "nic", described)
    path.write_bytes(damage)
    files.write(CLAIM, "nic", described)
    assert json.loads(path.read_bytes())["metadata"]["generation"] == 1


def test_a_claim_is_searched_while_files_of_others_are_removed(tmp_path):
    files = MetadataFiles(tmp_path)
    others = [ClaimRef(namespace="default", name=f"other-{number}", uid=f"uid-{number}") for number in range(20)]

    def write_and_remove() -> None:
        for _ in range(20):
            for other in others:
                files.write(other, "nic", [])
            for other in others:
                files.remove(other)

    with ThreadPoolExecutor(1) as pool:
        removals = pool.submit(write_and_remove)
        while not removals.done():
            assert files.find_claim("unknown") is None
    removals.result()
