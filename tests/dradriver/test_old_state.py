"""State of earlier versions still loads. The files in data/ were written by the last version without envelopes."""

import json
import shutil
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest

from podwire.dradriver.addresses.address_store import AddressStore
from podwire.dradriver.addresses.lease_records import LeaseRecords
from podwire.dradriver.attach.records import ATTACHED, PREPARED, DeviceRecords
from podwire.dradriver.claims.prepared_devices import PreparedDevices
from podwire.durable.records import NewerFormat
from podwire.ipam.dhcp.lease_records import PodLocation

DATA = Path(__file__).parent / "data"
CLAIM, POD = "11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002"


def install_record(state, text):
    path = state / "records" / POD / f"{CLAIM}~nic0~.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_device_record_of_format_1_loads_and_is_rewritten(tmp_path):
    path = install_record(tmp_path, (DATA / "record-1.json").read_text())
    records = DeviceRecords(tmp_path)
    (record,) = records.of_pod(POD)
    assert record.allocation.claim.uid == CLAIM
    assert (record.allocation.device.name, record.allocation.device.mtu) == ("nic0", 1400)
    assert record.allocation.settings.addresses == (ip_interface("10.5.0.7/24"), ip_interface("fd05::7/64"))
    assert record.allocation.settings.routes[0].destination == ip_network("10.6.0.0/16")
    assert record.addresses == record.allocation.settings.addresses
    assert (record.stage, record.boot) == (ATTACHED, "boot-1")
    assert (record.snapshot.name, record.snapshot.attributes.alias) == ("nic0", "cable")
    assert "10.77.0.0/16" in [str(route.destination) for route in record.snapshot.routes]
    records.advance(record.at(stage=PREPARED))
    assert json.loads(path.read_text())["format"] == 2
    assert DeviceRecords(tmp_path).of_claim(CLAIM) == (record.at(stage=PREPARED),)


def test_torn_progress_of_format_1_is_ignored(tmp_path):
    first, *others = (DATA / "record-1.json").read_text().splitlines()
    install_record(tmp_path, "\n".join([first, others[0], others[-1][:40]]))
    (record,) = DeviceRecords(tmp_path).all()
    assert record.stage == PREPARED


def test_record_without_a_valid_checksum_is_quarantined(tmp_path):
    path = install_record(tmp_path, (DATA / "record-1.json").read_text().replace("net1", "net9", 1))
    records = DeviceRecords(tmp_path)
    assert records.all() == ()
    assert list(records.damaged()) == [(POD, CLAIM, "nic0", "")]
    assert not path.exists()


def test_record_of_a_newer_version_is_refused_and_kept(tmp_path):
    path = install_record(tmp_path, (DATA / "record-1.json").read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(NewerFormat, match="written by a newer podwire"):
        DeviceRecords(tmp_path).all()
    assert path.exists()


def test_assigned_addresses_of_format_1_load(tmp_path):
    shutil.copy(DATA / "addresses-1.json", tmp_path / "addresses.json")
    (held,) = AddressStore(tmp_path, {}).held()
    assert (held.uid, held.interfaces) == (CLAIM, (ip_interface("10.4.0.1/24"), ip_interface("10.9.0.2/24")))


def test_lease_of_format_1_loads(tmp_path):
    id_ = json.loads((DATA / "lease-1.json").read_text())["key"]["claim"]["uid"]
    shutil.copy(DATA / "lease-1.json", tmp_path / f"{id_}-0.json")
    (record,) = LeaseRecords(tmp_path).all()
    assert (record.lease.address, record.lease.via) == (ip_interface("10.77.0.100/24"), b"\x02\x00\x00\x00\x00\xfe")
    assert record.place == PodLocation(netns="/run/netns/x", name="net1")


def test_published_device_without_an_envelope_loads(tmp_path):
    (tmp_path / "nic0.json").write_text('{"name": "nic0", "attributes": {"kind": {"string": "veth"}}}')
    devices = PreparedDevices(None, None, records=tmp_path, listed=tmp_path)
    assert devices._listed.get("nic0")["attributes"] == {"kind": {"string": "veth"}}
