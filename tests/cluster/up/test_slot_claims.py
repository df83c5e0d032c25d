from concurrent.futures import ThreadPoolExecutor

import pytest

from podwire.cluster.up.layout import Layout
from podwire.cluster.up.slot_claims import DIRECTORY, NoSlot, SlotClaims, own_netns
from podwire.cluster.up.state import NodeRecord, State, save


def claim(claims, layout, wanted=None, trouble=lambda _slot: ""):
    def keep(slot):
        save(layout.record, State(slot=slot.number, nodes=(NodeRecord(name="n", number=1, own=True),)))

    return claims.claim(layout, wanted, trouble, keep).number


@pytest.fixture
def claims(tmp_path):
    return SlotClaims(tmp_path / "run/slots")


def test_clusters_that_begin_at_once_get_different_slots(claims, tmp_path):
    layouts = [Layout(tmp_path / str(number)) for number in range(12)]
    with ThreadPoolExecutor(12) as threads:
        got = list(threads.map(lambda layout: claim(claims, layout), layouts))
    assert sorted(got) == list(range(1, 13))


def test_a_slot_that_is_given_back_is_given_again(claims, tmp_path):
    one, other = Layout(tmp_path / "one"), Layout(tmp_path / "other")
    assert claim(claims, one) == 1
    claims.release(one.prefix)
    assert claims.of(one.prefix) == []
    assert claim(claims, other) == 1


def test_nothing_stays_behind_when_all_are_given_back(claims, tmp_path):
    claim(claims, Layout(tmp_path / "one"))
    claims.note_forwarding(["net.ipv4.ip_forward"])
    claims.release(tmp_path / "one")
    assert not (tmp_path / "run").exists()


def test_a_stale_slot_claim_is_taken_over(claims, tmp_path):
    gone = Layout(tmp_path / "gone")
    claim(claims, gone)
    gone.record.unlink()
    assert claim(claims, Layout(tmp_path / "new")) == 1


def test_a_cluster_keeps_its_slot(claims, tmp_path):
    one, other = Layout(tmp_path / "one"), Layout(tmp_path / "other")
    assert [claim(claims, item) for item in (one, other)] == [1, 2]
    assert claim(claims, other, wanted=2) == 2
    with pytest.raises(NoSlot, match=r"slot 1: taken by the cluster below .*/one"):
        claim(claims, other, wanted=1)


def test_a_slot_that_something_speaks_against_is_passed_over(claims, tmp_path):
    assert claim(claims, Layout(tmp_path / "one"), trouble=lambda s: "no" if s.number < 4 else "") == 4


def test_without_a_free_slot_the_error_has_the_reasons(claims, tmp_path):
    with pytest.raises(NoSlot, match=r"slot 1: port 16444 is in use; slot 2: .*; …"):
        claim(claims, Layout(tmp_path / "one"), trouble=lambda slot: f"port {slot.api_port} is in use")
    assert not (tmp_path / "run").exists()


def test_an_unreadable_slot_claim_is_free(claims, tmp_path):
    claim(claims, Layout(tmp_path / "one"))
    (tmp_path / "run/slots/1").write_bytes(b"")
    assert claim(claims, Layout(tmp_path / "other")) == 1


def test_forwarding_ends_with_the_last_cluster(claims, tmp_path):
    one, other = Layout(tmp_path / "one"), Layout(tmp_path / "other")
    for item in (one, other):
        claim(claims, item)
    claims.note_forwarding(["net.ipv4.ip_forward"])
    assert claims.end_forwarding(one.prefix) == []
    claims.release(one.prefix)
    assert claims.end_forwarding(other.prefix) == ["net.ipv4.ip_forward"]
    assert claims.end_forwarding(other.prefix) == []


def test_a_claim_knows_the_network_namespace_of_its_links(claims, tmp_path):
    claim(claims, Layout(tmp_path / "one"))
    here = own_netns()
    assert claims.others(tmp_path / "other", here)
    assert not claims.others(tmp_path / "one", here)
    assert not claims.others(tmp_path / "other", f"{here}1")


@pytest.mark.parametrize("cleared", ["/run", "/var/run", "/tmp", "/dev/shm"])
def test_a_reboot_leaves_claims_where_they_are(cleared):
    assert not DIRECTORY.is_relative_to(cleared)


def test_slots_survive_a_reboot_and_forwarding_records_do_not(tmp_path):
    claims, rebooted = (
        SlotClaims(tmp_path / "run/slots", lambda boot=boot: f"{boot}-7") for boot in ("first", "second")
    )
    one, other = Layout(tmp_path / "one"), Layout(tmp_path / "other")
    claim(claims, one)
    claims.note_forwarding(["net.ipv4.ip_forward"])
    assert claim(rebooted, other) == 2, "though it comes first"
    assert claim(rebooted, one, wanted=1) == 1
    rebooted.release(one.prefix)
    assert rebooted.end_forwarding(other.prefix) == [], "what is on now was turned on by somebody else"


def test_a_cluster_that_has_not_come_up_since_the_boot_has_no_links(tmp_path):
    claims = SlotClaims(tmp_path / "run/slots", lambda: "another-boot-7")
    claim(claims, Layout(tmp_path / "one"))
    assert not claims.others(tmp_path / "other", own_netns())


def test_clusters_that_come_and_go_at_once_do_not_meet(claims, tmp_path):
    """The last one to leave removes the directory, while the next one makes it."""

    def comes_and_goes(number):
        layout = Layout(tmp_path / str(number))
        for _ in range(150):
            slot = claim(claims, layout)
            assert claims.of(layout.prefix) == [slot]
            claims.release(layout.prefix)
            assert claims.of(layout.prefix) == []
            assert not claims.others(layout.prefix, "")

    with ThreadPoolExecutor(3) as threads:
        for item in [threads.submit(comes_and_goes, number) for number in range(3)]:
            item.result(timeout=60)
    assert list(tmp_path.glob("run*")) == []
