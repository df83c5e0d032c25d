import pytest

from podwire.cluster.runtime import Options
from podwire.inspect.leakcheck import Leftover, lasting, leaks, owner_of_element, owner_of_link, table
from podwire.inspect.leftovers import find_resources

KNOWN = Leftover("netns", "/run/netns/podwire-a", "a")
LOST = Leftover("mount", "/run/podwire/shm/b", "b")


def test_what_no_owner_explains_has_leaked():
    assert leaks([KNOWN, LOST, LOST], {"a"}) == [LOST]


def test_what_only_one_look_found_is_no_leak():
    assert lasting([KNOWN, LOST], [LOST]) == [LOST]


@pytest.mark.parametrize(
    ("alias", "owner"),
    [
        pytest.param("podwire:0123 net/abc/eth0", "abc", id="a pod's"),
        pytest.param("podwire", None, id="the bridge's, which all pods share"),
        pytest.param("uplink to net/abc/eth0", None, id="somebody else's"),
        pytest.param("", None, id="none"),
    ],
)
def test_links_are_known_by_their_alias(alias, owner):
    assert owner_of_link(alias) == owner


@pytest.mark.parametrize(("comment", "owner"), [("0123 abc eth0", "abc"), ("", None), ("note", None)])
def test_nft_elements_are_known_by_their_comment(comment, owner):
    assert owner_of_element(comment) == owner


def test_the_table_has_a_column_for_each():
    assert table([LOST]).splitlines() == [
        "KIND    NAME                 OWNER",
        "mount   /run/podwire/shm/b   b",
    ]


def test_what_plugins_have_on_disk_is_a_trace_of_its_pod(tmp_path):
    record = tmp_path / "var/lib/podwire/cni/attachments/bridge/net@lost@eth0"
    lease = tmp_path / "var/lib/podwire/cni/networks/net/@lost@eth0"
    for each in (record, lease):
        each.parent.mkdir(parents=True)
    record.touch()
    lease.symlink_to("10.1.0.5")
    traces = find_resources(Options(socket=tmp_path / "cri.sock", prefix=tmp_path))
    assert {each for each in traces if each.owner == "lost"} == {
        Leftover("CNI record", str(record), "lost"),
        Leftover("lease", str(lease), "lost"),
    }
