"""Elements of nft sets and maps, and what nft itself tells of them."""

import shutil
import subprocess
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.linux import errors
from podwire.linux.nft import keys
from podwire.linux.nft import table as ruleset
from podwire.linux.nft.table import TABLE, KernelRuleset
from podwire.linux.nft.values import Change, Element

RULESET = """
table inet podwire {
    set pods { type ipv4_addr; }
    map ports { type inet_proto . inet_service : ipv4_addr . inet_service; }
    map doors { type ifname : verdict; }
    chain pod { }
}
"""

pytestmark = pytest.mark.skipif(shutil.which("nft", path="/usr/sbin:/usr/bin") is None, reason="no nft program")


def pod(last: int, owner: str = "") -> Element:
    return Element(keys.address(ip_address(f"10.0.0.{last}")), comment=owner)


def port(number: int, last: int, owner: str = "") -> Element:
    target = keys.joined(keys.address(ip_address(f"10.0.0.{last}")), keys.port(8080))
    return Element(keys.joined(keys.protocol("tcp"), keys.port(number)), target, owner)


@pytest.fixture
def table(kernel, tmp_path):
    """On demand: elements of a fresh table in a namespace of its own, and that namespace's path."""
    opened = []

    def make():
        path = kernel.namespaces(tmp_path).create("one").path
        kernel.ruleset(path).apply(RULESET)
        opened.append(kernel.elements(path, TABLE))
        return opened[-1], path

    yield make
    for item in opened:
        item.close()


def shown(path: str, *command: str) -> str:
    entered = ["nsenter", f"--net={path}", "nft", *command]
    return subprocess.run(entered, capture_output=True, text=True, check=True).stdout


def test_elements_come_and_go(kernel, table):
    elements, path = table()
    elements.add("pods", pod(1, "podwire:web-1"), pod(2, "podwire:web-2"))
    assert sorted(elements.list("pods")) == [pod(1, "podwire:web-1"), pod(2, "podwire:web-2")]
    assert '10.0.0.1 comment "podwire:web-1"' in shown(path, "list", "set", "inet", "podwire", "pods")
    elements.delete("pods", pod(1))
    assert elements.list("pods") == [pod(2, "podwire:web-2")]


def test_a_map_has_data(kernel, table):
    elements, path = table()
    elements.add("ports", port(80, 1, "web"), port(443, 2))
    assert sorted(elements.list("ports")) == sorted([port(80, 1, "web"), port(443, 2)])
    text = shown(path, "list", "map", "inet", "podwire", "ports")
    assert 'tcp . 80 comment "web" : 10.0.0.1 . 8080' in text
    assert "tcp . 443 : 10.0.0.2 . 8080" in text


def test_a_map_has_verdicts(kernel, table):
    elements, path = table()
    jump, drop = Element(keys.interface("eth0"), "jump pod"), Element(keys.interface("eth1"), "drop", "mine")
    elements.add("doors", jump, drop)
    assert sorted(elements.list("doors")) == [jump, drop]
    assert '"eth0" : jump pod' in shown(path, "list", "map", "inet", "podwire", "doors")


@pytest.mark.parametrize(
    "second",
    [pytest.param(port(80, 1), id="the same"), pytest.param(port(80, 2), id="the same key with other data")],
)
def test_a_key_is_there_once(kernel, table, second):
    elements, _ = table()
    elements.add("ports", port(80, 1))
    with pytest.raises(errors.ElementExists):
        elements.add("ports", second)
    assert elements.list("ports") == [port(80, 1)]


def test_change_is_atomic(kernel, table):
    elements, _ = table()
    elements.add("pods", pod(1))
    for change in (
        (Change("pods", add=[pod(2)]), Change("ports", delete=[port(80, 1)])),
        (Change("ports", add=[port(80, 1)]), Change("pods", add=[pod(1)])),
        (Change("pods", delete=[pod(1)]), Change("nothing", add=[pod(1)])),
    ):
        with pytest.raises((errors.NoSuchElement, errors.ElementExists, errors.NoSuchSet)):
            elements.change(*change)
        assert (elements.list("pods"), elements.list("ports")) == ([pod(1)], [])


def test_change_deletes_before_it_adds(kernel, table):
    elements, _ = table()
    elements.add("ports", port(80, 1))
    elements.change(Change("ports", add=[port(80, 2)], delete=[port(80, 1)]), Change("pods", add=[pod(2)]))
    assert (elements.list("ports"), elements.list("pods")) == ([port(80, 2)], [pod(2)])


def test_missing_table_set_and_element_differ(kernel, table):
    elements, path = table()
    with pytest.raises(errors.NoSuchElement):
        elements.delete("pods", pod(1))
    with pytest.raises(errors.NoSuchSet):
        elements.add("nothing", pod(1))
    with pytest.raises(errors.NoSuchSet):
        elements.list("nothing")
    other = kernel.elements(path, "nobodys")
    with pytest.raises(errors.NoSuchTable, match="change elements of pods"):
        other.add("pods", pod(1))
    other.close()


def test_unchanged_table_needs_no_transaction(kernel, table):
    elements, _ = table()
    elements.change()
    elements.change(Change("nothing"))


def test_thousands_fit_into_one_change(kernel, table):
    elements, _ = table()
    many = [Element(number.to_bytes(4, "big"), comment=f"pod {number}") for number in range(1, 3001)]
    elements.add("pods", *many)
    assert sorted(elements.list("pods")) == many
    elements.delete("pods", *many)
    assert elements.list("pods") == []


def test_a_tag_that_is_too_long_is_refused(kernel, table):
    elements, _ = table()
    elements.add("pods", pod(1, "x" * 127))
    with pytest.raises(errors.Refused, match="at most 127 bytes"):
        elements.add("pods", pod(2, "x" * 128))
    assert elements.list("pods") == [pod(1, "x" * 127)]


def test_delete_table_removes_its_content_and_is_idempotent(kernel, table):
    elements, path = table()
    elements.add("pods", pod(1))
    for _ in range(2):
        kernel.ruleset(path).delete_table(TABLE)
    with pytest.raises(errors.NoSuchTable):
        elements.add("pods", pod(1))


def test_a_ruleset_can_be_applied_again_without_losing_elements(kernel, table):
    elements, path = table()
    elements.add("pods", pod(1))
    kernel.ruleset(path).apply(RULESET)
    assert elements.list("pods") == [pod(1)]


def test_bad_ruleset_has_the_message_of_nft(kernel, table):
    _, path = table()
    with pytest.raises(errors.BadRuleset, match="apply the nft ruleset"):
        kernel.ruleset(path).apply("table inet podwire {")


def test_a_ruleset_is_one_transaction(kernel, tmp_path):
    path = kernel.namespaces(tmp_path).create("one").path
    with pytest.raises(errors.BadRuleset, match="nonsense"):
        kernel.ruleset(path).apply("add table inet podwire\nadd rule inet podwire nowhere nonsense\n")
    assert shown(path, "list", "tables") == ""


def test_a_key_of_the_wrong_length_is_refused(kernel, tmp_path):
    path = kernel.namespaces(tmp_path).create("one").path
    kernel.ruleset(path).apply(RULESET)
    elements = kernel.elements(path, TABLE)
    with pytest.raises(errors.Refused):
        elements.add("pods", Element(b"123"))
    elements.close()


def test_missing_nft_is_unsupported(kernel, tmp_path, monkeypatch):
    monkeypatch.setitem(ruleset._ENVIRONMENT, "PATH", str(tmp_path))
    with pytest.raises(errors.Unsupported, match="not installed"):
        KernelRuleset().apply("")


def test_rules_apply_to_packets(kernel, tmp_path):
    """The proof of a data path is the kernel's own counter."""
    path = kernel.namespaces(tmp_path).create("one").path
    network = kernel.network(path)
    network.links.change("lo", up=True)
    kernel.ruleset(path).apply(
        """table inet podwire {
            set pods { type ipv4_addr; }
            chain out { type filter hook output priority 0; ip daddr @pods drop; }
        }"""
    )
    elements = kernel.elements(path, TABLE)
    ping = ["nsenter", f"--net={path}", "bash", "-c", "echo > /dev/udp/127.0.0.9/9"]
    assert subprocess.run(ping, capture_output=True, check=False).returncode == 0
    elements.add("pods", Element(keys.address(ip_address("127.0.0.9"))))
    assert b"not permitted" in subprocess.run(ping, capture_output=True, check=False).stderr
    elements.close()
    network.close()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
def test_comment_is_read_as_it_was_written(text):
    assert keys.commented(keys.comment(text)) == text


@pytest.mark.parametrize("data", [b"", b"\1\2ab", b"\1\2ab\0\3ok\0", b"\0", b"\5\xff"])
def test_foreign_user_data_is_not_a_comment(data):
    assert keys.commented(data) == ("ok" if b"ok" in data else "")


def test_fields_are_joined_in_whole_words():
    assert keys.joined(keys.protocol("udp"), keys.port(53)) == bytes((17, 0, 0, 0, 0, 53, 0, 0))
    assert keys.joined(keys.port(53)) == bytes((0, 53))


def test_a_table_of_the_bridge_family_has_elements_of_its_own(kernel):
    kernel.ruleset(None).apply("add table inet podwire\nadd set inet podwire names { type ifname; }\n")
    kernel.ruleset(None).apply("add table bridge podwire\nadd set bridge podwire macs { type ifname . ether_addr; }\n")
    inet = kernel.elements(None, "podwire")
    bridge = inet.of("bridge")
    element = Element(keys.joined(keys.interface("veth0"), keys.mac("02:00:00:00:00:01")), comment="of a pod")
    bridge.add("macs", element)
    assert bridge.list("macs") == [element]
    finished = subprocess.run(["nft", "list", "table", "bridge", "podwire"], capture_output=True, text=True, check=True)
    assert '"veth0" . 02:00:00:00:00:01 comment "of a pod"' in finished.stdout
    with pytest.raises(errors.NoSuchSet):
        inet.list("macs")
    bridge.delete("macs", element)
    assert bridge.list("macs") == []
    inet.close()
