"""Profiles of hardware: what is read, what is refused and by which words, what follows from one."""

import pytest

from podwire.cluster.hardware import profile_yaml
from podwire.cluster.hardware.pci_functions import bridges, functions
from podwire.cluster.hardware.profile import BadProfile, Gpu, Nic, Profile, Root


def loaded(tmp_path, text):
    file = tmp_path / "profile.yaml"
    file.write_text(text)
    return profile_yaml.load(str(file))


@pytest.mark.parametrize("name", profile_yaml.names())
def test_a_profile_that_comes_with_podwire_can_be_used(name):
    profile = profile_yaml.load(name)
    found = functions(profile)
    assert len({item.pci for item in found}) == len(found)
    assert len({item.mac for item in found if item.name}) == len([item for item in found if item.name])
    assert all(item.numa is not None for item in found)


def test_every_field_of_a_profile_is_read(tmp_path):
    text = """
numaNodes: 2
pcieRoots: [{name: pci0000:10, numa: 1}]
nics:
- name: nic0
  pci: 0000:11:00.0
  root: pci0000:10
  numa: 1
  vendor: 0x1af4
  device: 1041
  driver: virtio-pci
  speed: 100000
  mac: 02:00:00:00:00:01
  mtu: 9000
  vfs: 2
  vfDevice: 0x1042
  vfDriver: vfdrv
  rdma: mlx5_0
gpus: [{pci: 0000:12:00.0, vendor: 10de, device: 0x2330, model: big}]
"""
    nic = Nic(
        name="nic0",
        pci="0000:11:00.0",
        root="pci0000:10",
        numa=1,
        vendor="1af4",
        device="1041",
        driver="virtio-pci",
        speed=100_000,
        mac="02:00:00:00:00:01",
        mtu=9000,
        vfs=2,
        vf_device="1042",
        vf_driver="vfdrv",
        rdma="mlx5_0",
    )
    gpu = Gpu(pci="0000:12:00.0", model="big")
    assert loaded(tmp_path, text) == Profile(
        numa_nodes=2, roots=(Root(name="pci0000:10", numa=1),), nics=(nic,), gpus=(gpu,)
    )


NIC = "{name: nic0, pci: 0000:3b:00.0}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("[]", "must be a mapping with numaNodes, pcieRoots, nics, gpus", id="no mapping"),
        pytest.param("numaNodes: 2", "nics: the profile has neither nics nor gpus", id="nothing"),
        pytest.param(f"cards: [{NIC}]", "cards: is not a setting; known settings", id="an unknown field"),
        pytest.param("nics: []", "nics: must be a list with at least one item", id="an empty list"),
        pytest.param("nics: [{pci: 0000:3b:00.0}]", "nics[0].name: is required", id="a card without a name"),
        pytest.param("nics: [{name: nic0}]", "nics[0].pci: is required", id="a card without an address"),
        pytest.param("nics: [{name: nic0, pci: 3b:00.0}]", "nics[0].pci: '3b:00.0' is not a PCI address", id="short"),
        pytest.param("nics: [{name: nic0, pci: 0000:3b:20.0}]", "nics[0].pci: '0000:3b:20.0' is not", id="device 32"),
        pytest.param(
            "nics: [{name: a b, pci: 0000:3b:00.0}]", "nics[0].name: 'a b' is not a link name", id="a bad name"
        ),
        pytest.param(
            "nics: [{name: eth0, pci: 0000:3b:00.0}]", "nics[0].name: eth0 is the name of a link that", id="the uplink"
        ),
        pytest.param(
            "nics: [{name: verylongname123, pci: 0000:3b:00.0, vfs: 2}]",
            "nics[0].name: verylongname123v1 is too long",
            id="names of virtual functions",
        ),
        pytest.param(f"numaNodes: 0\nnics: [{NIC}]", "numaNodes: 0 must be a number from 1 to 64", id="no NUMA node"),
        pytest.param(
            "nics: [{name: nic0, pci: 0000:3b:00.0, numa: 1}]",
            "nics[0].numa: node 1 does not exist: numaNodes is 1",
            id="a NUMA node that is not there",
        ),
        pytest.param(f"nics: [{NIC}, {NIC}]", "nics[1].pci: 0000:3b:00.0 is used by nics[0] already", id="twice"),
        pytest.param(
            f"nics: [{NIC}]\ngpus: [{{pci: 0000:3b:00.0}}]",
            "gpus[0].pci: 0000:3b:00.0 is used by nics[0] already",
            id="a card and a GPU",
        ),
        pytest.param(
            "nics: [{name: a, pci: 0000:3b:00.0, vfs: 1}, {name: av0, pci: 0000:3b:00.1}]",
            "nics[1].name: av0 is used by nics[0] already",
            id="the name of a virtual function",
        ),
        pytest.param("nics: [{name: a, pci: 0000:3b:00.0, vfs: 129}]", "nics[0].vfs: 129 must be a number", id="many"),
        pytest.param(
            "nics: [{name: a, pci: 0000:3b:00.0, vfs: 128}, {name: b, pci: 0000:3b:00.1, vfs: 128}]",
            "nics[1].vfs: more than 240 virtual functions on one bus",
            id="a full bus",
        ),
        pytest.param("nics: [{name: a, pci: 0000:3b:00.0, mac: 01:00:00:00:00:01}]", "nics[0].mac", id="a group's MAC"),
        pytest.param(
            "nics: [{name: a, pci: 0000:3b:00.0, vendor: x}]", "nics[0].vendor: 'x' must look like", id="vendor"
        ),
        pytest.param("nics: [{name: a, pci: 0000:3b:00.0, speed: fast}]", "nics[0].speed: 'fast' must be", id="speed"),
        pytest.param(
            "pcieRoots: [{name: pci0000:40}]\nnics: [{name: a, pci: 0000:3b:00.0, root: pci0000:40}]",
            "nics[0].root: 0000:3b:00.0 cannot be below pci0000:40, whose buses begin at 40",
            id="a root behind its device",
        ),
        pytest.param(
            "numaNodes: 2\npcieRoots: [{name: pci0000:3a, numa: 0}]\nnics: [{name: a, pci: 0000:3b:00.0, numa: 1}]",
            "nics[0].numa: pci0000:3a is on node 0, so 0000:3b:00.0 cannot be on 1",
            id="a root on another node",
        ),
        pytest.param(f"nics: [{NIC}]\nnics: [{NIC}]", "nics is there twice", id="a key twice"),
        pytest.param("nics: {", "is not YAML", id="no YAML"),
        pytest.param("numaNodes: !!int x", "is not YAML", id="a number that is none"),
    ],
)
def test_an_invalid_profile_is_refused_with_its_field(tmp_path, text, says):
    with pytest.raises(BadProfile) as refused:
        loaded(tmp_path, text)
    assert says in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_an_unknown_profile_is_refused_with_the_known_names():
    with pytest.raises(BadProfile, match="nor one of the profiles sriov, two-numa"):
        profile_yaml.load("sriow")


def test_virtual_functions_of_two_cards_on_one_bus_have_addresses_of_their_own():
    found = functions(profile_yaml.load("sriov"))
    assert [number.pci for number in found if number.physical == "0000:3b:00.1"] == [
        f"0000:3b:02.{n}" for n in range(4, 8)
    ]
    assert [item.name for item in found][:3] == ["ens1f0", "ens1f0v0", "ens1f0v1"]


def test_a_card_on_a_bus_of_its_own_is_behind_a_port_of_its_root():
    profile = profile_yaml.load("two-numa")
    card = functions(profile)[0]
    assert card.place == "devices/pci0000:15/0000:15:01.0/0000:18:00.0"
    assert (card.root, card.numa) == ("pci0000:15", 0)
    assert "0000:15:01.0" in {bridge.pci for bridge in bridges(profile)}
    assert {function.root for function in functions(profile) if function.gpu} == {
        function.root for function in functions(profile)
    }
