"""Files of pools: valid ones, and errors about those that cannot be used."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.cli.main import main
from podwire.deviceplugin.config import Files, Interfaces, Make, config, load, variable
from podwire.protocols.settings import BadConfig

WHOLE = """
pools:
  - name: fast
    interfaces: {names: [ens*], drivers: [mlx5_core], pciAddresses: ["0000:3b:02.*"], numaNodes: [0, 1], carrier: false}
  - name: spare
    cdi: true
    make: {kind: macvlan, parent: eth1, count: 4, mtu: 9000, mode: private, prefix: sp}
  - name: tun
    files: {paths: [/dev/net/tun, /dev/vhost-net], permissions: rwm, count: 100}
"""


def test_a_whole_file_is_read(tmp_path):
    (tmp_path / "pools.yaml").write_text(WHOLE)
    fast, spare, tun = load(tmp_path / "pools.yaml").pools
    assert fast.source == Interfaces(
        names=("ens*",),
        drivers=("mlx5_core",),
        pci_addresses=("0000:3b:02.*",),
        numa_nodes=(0, 1),
        carrier=False,
    )
    assert spare.source == Make(kind="macvlan", parent="eth1", count=4, prefix="sp", mtu=9000, mode="private")
    assert (spare.cdi, fast.cdi) == (True, False)
    assert tun.source == Files(paths=("/dev/net/tun", "/dev/vhost-net"), permissions="rwm", count=100)
    assert tun.resource == "net.podwire.dev/tun"


def pool(**keys):
    return {"pools": [{"name": "p", **keys}]}


def files(**keys):
    return pool(files={"paths": ["/dev/null"], **keys})


def make(**keys):
    return pool(make={"kind": "veth", "parent": "br0", "count": 2, **keys})


def without(key):
    found = make()
    del found["pools"][0]["make"][key]
    return found


TUN = {"paths": ["/dev/net/tun"]}

BAD = {
    "nothing": (None, "must be a mapping with pools"),
    "a list": ([], "must be a mapping with pools"),
    "no pools": ({}, "pools: at least one is needed"),
    "an empty list": ({"pools": []}, "pools: must be a list with at least one item"),
    "pools that are no list": ({"pools": {"a": 1}}, "pools: must be a list with at least one item"),
    "another key": ({"pool": []}, "pool: is not a setting; known settings: pools"),
    "a pool that is text": ({"pools": ["a"]}, r"pools\[0\]: must be a mapping with name, cdi, interfaces, make, files"),
    "a pool without a name": ({"pools": [{"files": TUN}]}, r"pools\[0\].name: is required"),
    "a name of capitals": ({"pools": [{"name": "Fast", "files": TUN}]}, "'Fast' cannot end a resource's name"),
    "a name that is too long": ({"pools": [{"name": "a" * 64, "files": TUN}]}, "cannot end a resource's name"),
    "a name that is a number": ({"pools": [{"name": 7, "files": TUN}]}, "7 cannot end a resource's name"),
    "a name with a slash": ({"pools": [{"name": "a/b", "files": TUN}]}, "cannot end a resource's name"),
    "no source": (pool(), r"pools\[0\]: exactly one of interfaces, make, files is needed, not 0"),
    "two sources": (
        pool(files=TUN, interfaces={"names": ["a"]}),
        r"pools\[0\]: exactly one of interfaces, make, files is needed, not 2",
    ),
    "an unknown key in a pool": (pool(files=TUN, count=3), r"pools\[0\].count: is not a setting"),
    "cdi as a word": (pool(files=TUN, cdi="yes"), r"pools\[0\].cdi: must be true or false"),
    "every link of the host": (pool(interfaces={}), "one of names, drivers, pciAddresses, numaNodes is needed"),
    "only carrier": (pool(interfaces={"carrier": True}), "not every link of the host is for pods"),
    "names as text": (pool(interfaces={"names": "eth0"}), "interfaces.names: must be a list with at least one item"),
    "an empty pattern": (pool(interfaces={"names": [""]}), r"interfaces.names\[0\]: is not a printable text"),
    "a pattern twice": (pool(interfaces={"names": ["a", "a"]}), r"interfaces.names\[1\]: is there twice"),
    "no PCI address": (pool(interfaces={"pciAddresses": ["eth0"]}), r"pciAddresses\[0\]: 'eth0' is not a PCI address"),
    "a NUMA node below 0": (
        pool(interfaces={"numaNodes": [-1]}),
        r"\[0\]: -1 must be a number from 0 to 1023",
    ),
    "a NUMA node that is true": (pool(interfaces={"numaNodes": [True]}), r"numaNodes\[0\]: True must be a number"),
    "a kind that nobody makes": (make(kind="ipvlan"), "make.kind: 'ipvlan' must be one of veth, macvlan, tap"),
    "no kind": (without("kind"), "make.kind: is required"),
    "no parent": (without("parent"), "make.parent: is required"),
    "no count": (without("count"), "make.count: is required"),
    "count 0": (make(count=0), "make.count: 0 must be a number from 1 to 1000"),
    "too many": (make(count=1001), "make.count: 1001 must be a number from 1 to 1000"),
    "a parent with a slash": (make(parent="../x"), r"make.parent: '../x' is not a name of a link"),
    "a parent that is too long": (make(parent="a" * 16), "is not a name of a link"),
    "a mode of a veth": (make(mode="bridge"), "make.mode: a veth has none"),
    "a mode that nobody knows": (make(kind="macvlan", mode="passthru"), "make.mode: 'passthru' must be one of"),
    "an MTU of 0": (make(mtu=0), "make.mtu: 0 must be a number from 68 to 65535"),
    "a prefix with a blank": (make(prefix="a b"), "make.prefix: 'a b' begins no name of a link"),
    "a prefix that is too long": (make(prefix="a" * 11, count=1000), "make.prefix: a{11}999 is too long for a link"),
    "no paths": (pool(files={"count": 1}), "files.paths: at least one is needed"),
    "a path from here": (files(paths=["dev/null"]), r"files.paths\[0\]: 'dev/null' is not an absolute path"),
    "a path with ..": (files(paths=["/dev/../etc"]), r"files.paths\[0\]: '/dev/../etc' is not an absolute path"),
    "permissions in disorder": (files(permissions="wr"), "files.permissions: 'wr' must be of r, w, m"),
    "no permissions": (files(permissions=""), "files.permissions: '' must be of r, w, m"),
    "more than ten thousand": (files(count=10_001), "files.count: 10001 must be a number from 1 to 10000"),
    "a name twice": (
        {"pools": [{"name": "p", "files": TUN}, {"name": "p", "interfaces": {"names": ["a"]}}]},
        r"pools\[1\].name: p belongs to pools\[0\], p, already",
    ),
    "names with one variable": (
        {"pools": [{"name": "a-b", "files": TUN}, {"name": "a.b", "interfaces": {"names": ["a"]}}]},
        r"pools\[1\].name: PODWIRE_DEVICE_A_B belongs to pools\[0\], a-b, already",
    ),
    "a file of two pools": (
        {"pools": [{"name": "a", "files": TUN}, {"name": "b", "files": TUN}]},
        r"pools\[1\].files.paths\[0\]: /dev/net/tun belongs to pools\[0\], a, already",
    ),
    "links of two pools": (
        {
            "pools": [
                {"name": "a", "make": {"kind": "veth", "parent": "br0", "count": 20}},
                {"name": "a1", "make": {"kind": "tap", "parent": "br0", "count": 2}},
            ]
        },
        r"pools\[1\].make.prefix: a10 belongs to pools\[0\], a, already",
    ),
}


@pytest.mark.parametrize(("found", "reported"), BAD.values(), ids=BAD)
def test_a_file_that_cannot_be_used_is_refused_by_key_and_reason(found, reported):
    with pytest.raises(BadConfig, match=reported):
        config(found)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        pytest.param("pools: [", "is not YAML", id="no YAML"),
        pytest.param("pools: []\npools: []", "pools is there twice", id="a key twice"),
        pytest.param("pools:\n- name: Fast\n  files: {paths: [/dev/net/tun]}", "'Fast' cannot end", id="a bad pool"),
    ],
)
def test_command_reports_an_invalid_file_in_one_line(tmp_path, capsys, text, reported):
    path = tmp_path / "pools.yaml"
    path.write_text(text)
    assert main(["device-plugin", "--config", str(path), "--check"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert reported in said


def test_the_command_checks_a_file_without_running(tmp_path, capsys):
    path = tmp_path / "pools.yaml"
    path.write_text(WHOLE)
    assert main(["device-plugin", "--config", str(path), "--check"]) == 0
    assert capsys.readouterr().out.split() == ["net.podwire.dev/fast", "net.podwire.dev/spare", "net.podwire.dev/tun"]


def test_a_file_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["device-plugin", "--config", str(tmp_path / "none.yaml"), "--check"]) == 1
    assert "none.yaml: No such file or directory" in capsys.readouterr().err


def test_name_of_a_variable_is_valid_in_a_shell():
    assert variable("my-pool.v2") == "PODWIRE_DEVICE_MY_POOL_V2"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from(["name", "cdi", "interfaces", "make", "files", "names", "kind", "parent", "count", "paths"])


POOLS = st.dictionaries(KEYS, st.dictionaries(KEYS, JSON, max_size=3) | JSON, max_size=3)


@given(st.fixed_dictionaries({"pools": st.lists(POOLS, max_size=2)}) | JSON)
def test_any_file_is_read_or_refused(found):
    with contextlib.suppress(BadConfig):
        assert config(found).pools
