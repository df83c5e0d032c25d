"""AddressStore from pools and of claims: unique, durable, the same again whatever happened."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from ipaddress import ip_interface
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from podwire.dradriver.addresses.address_store import AddressLimits, AddressStore
from podwire.dradriver.addresses.assignments import Exhausted
from podwire.dradriver.addresses.keys import Key
from podwire.dradriver.addresses.pools import parse_pools
from podwire.dradriver.claims.allocations import ClaimRef, Refused
from podwire.durable.records import NewerFormat
from podwire.linux import syscalls
from tests.dradriver.support import fill

POOLS = parse_pools(
    {
        "lab": {"subnet": "10.9.0.0/29", "gateway": "10.9.0.1"},
        "dual": {"ranges": [[{"subnet": "10.8.0.0/29"}], [{"subnet": "fd00:8::/64", "gateway": "fd00:8::1"}]]},
        "part": {"subnet": "10.9.0.0/29", "rangeStart": "10.9.0.4", "exclude": ["10.9.0.5"]},
    }
)


def key(claim, device="eth1", request="nic", share_id=""):
    ref = ClaimRef(namespace="default", name=claim, uid=f"uid-{claim}")
    return Key(claim=ref, request=request, device=device, share_id=share_id)


def texts(given):
    return [str(item) for item in given]


@pytest.fixture
def addresses(tmp_path):
    return AddressStore(tmp_path / "state", POOLS, limits=AddressLimits(lock=0.3))


def test_a_key_gets_one_address_of_each_set_and_the_same_again(addresses, tmp_path):
    given = addresses.reserve(key("a"), pool="dual")
    assert texts(given) == ["10.8.0.2/29", "fd00:8::2/64"]
    assert addresses.reserve(key("a"), pool="dual") == given
    assert AddressStore(tmp_path / "state", POOLS).reserve(key("a"), pool="dual") == given


@pytest.mark.parametrize(
    ("families", "given"),
    [
        pytest.param([4], ["10.8.0.2/29"], id="only the old"),
        pytest.param([6], ["fd00:8::2/64"], id="only the new"),
        pytest.param([6, 4], ["10.8.0.2/29", "fd00:8::2/64"], id="both"),
    ],
)
def test_a_claim_gets_the_families_that_it_asks_for(addresses, families, given):
    assert texts(addresses.reserve(key("a"), pool="dual", families=families)) == given


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(key("b"), id="another claim"),
        pytest.param(key("a", device="eth2"), id="another device"),
        pytest.param(key("a", request="nic/second"), id="another request"),
        pytest.param(key("a", share_id="s2"), id="another share"),
    ],
)
def test_another_key_gets_another_address(addresses, other):
    assert addresses.reserve(key("a"), pool="lab") != addresses.reserve(other, pool="lab")


def test_released_address_is_given_again_after_all_other_addresses(addresses):
    addresses.reserve(key("a"), pool="lab")
    addresses.release("uid-a")
    given = [texts(addresses.reserve(key(f"b{number}"), pool="lab")) for number in range(5)]
    assert given == [["10.9.0.3/29"], ["10.9.0.4/29"], ["10.9.0.5/29"], ["10.9.0.6/29"], ["10.9.0.2/29"]]


def test_full_pool_error_names_its_size_and_the_largest_holder(addresses):
    for device in ("eth1", "eth2", "eth3"):
        addresses.reserve(key("greedy", device=device), pool="lab")
    for claim in ("b", "c"):
        addresses.reserve(key(claim), pool="lab")
    with pytest.raises(Exhausted) as full:
        addresses.reserve(key("late"), pool="lab")
    assert str(full.value) == (
        "pool lab: no address is left in 10.9.0.1 to 10.9.0.6, all 5 are held;"
        " most by default/greedy (3), default/b (1), default/c (1)"
    )
    addresses.release("uid-b")
    assert addresses.reserve(key("late"), pool="lab")


def test_address_that_a_claim_names_is_not_assigned_to_another_claim(addresses):
    own = ip_interface("10.9.0.2/24")
    assert addresses.reserve(key("a"), wanted=[own]) == (own,)
    assert texts(addresses.reserve(key("b"), pool="lab")) == ["10.9.0.3/29"]
    with pytest.raises(Refused) as refused:
        addresses.reserve(key("c"), wanted=[ip_interface("10.9.0.3/16")])
    assert str(refused.value) == ("interface.addresses: 10.9.0.3 is held by claim default/b, request nic, device eth1")
    addresses.release("uid-b")
    assert texts(addresses.reserve(key("c"), wanted=[ip_interface("10.9.0.3/16")])) == ["10.9.0.3/16"]


def test_a_claim_may_name_one_address_for_two_of_its_own_devices(addresses):
    anycast = ip_interface("192.0.2.1/32")
    for device in ("eth1", "eth2"):
        assert addresses.reserve(key("a", device=device), wanted=[anycast]) == (anycast,)
    addresses.release("uid-a")
    assert addresses.reserve(key("b"), wanted=[anycast]) == (anycast,)


def test_changed_request_releases_the_earlier_addresses(addresses):
    addresses.reserve(key("a"), pool="lab")
    addresses.reserve(key("a"), wanted=[ip_interface("192.0.2.7/24")])
    assert [texts(item.interfaces) for item in addresses.held()] == [["192.0.2.7/24"]]


def test_refused_request_changes_nothing(addresses):
    addresses.reserve(key("a"), wanted=[ip_interface("192.0.2.7/24")])
    addresses.reserve(key("b"), pool="lab")
    before = addresses.held()
    with pytest.raises(Refused):
        addresses.reserve(key("b"), pool="lab", wanted=[ip_interface("192.0.2.7/24")])
    assert addresses.held() == before


@pytest.mark.parametrize(
    ("asked", "reported"),
    [
        pytest.param(
            {"pool": "no"}, "interface.addressPool: this node has no pool 'no'; it has dual, lab, part", id="pool"
        ),
        pytest.param(
            {"pool": "lab", "families": [6]}, "interface.addressPool: pool lab has no IPv6 addresses", id="family"
        ),
        pytest.param(
            {"pool": "lab", "wanted": [ip_interface("10.9.0.1/29")]},
            "interface.addresses: 10.9.0.1 is the gateway of pool lab",
            id="gateway",
        ),
    ],
)
def test_impossible_request_is_refused_with_the_reason(addresses, asked, reported):
    with pytest.raises(Refused) as refused:
        addresses.reserve(key("a"), **asked)
    assert str(refused.value) == reported


def test_pools_that_overlap_never_give_the_same(addresses):
    given = {texts(addresses.reserve(key(f"l{number}"), pool="lab"))[0] for number in range(3)}
    given |= {texts(addresses.reserve(key(f"p{number}"), pool="part"))[0] for number in range(1)}
    assert given == {"10.9.0.2/29", "10.9.0.3/29", "10.9.0.4/29", "10.9.0.6/29"}
    with pytest.raises(Exhausted):
        addresses.reserve(key("p9"), pool="part")


def test_claims_that_are_gone_give_everything_back(addresses):
    for claim in ("a", "b", "c"):
        addresses.reserve(key(claim), pool="lab")
    freed = addresses.reconcile({"uid-b"}, ())
    assert [item.name for item in freed] == ["a", "c"]
    assert [item.name for item in addresses.held()] == ["b"]
    addresses.release("uid-nobody")


@pytest.mark.parametrize("damage", [None, b"", b"{", b'{"version":1,"held":[{}]}'])
def test_damaged_assignments_are_made_anew_and_no_address_is_assigned_twice(addresses, tmp_path, damage):
    earlier = addresses.reserve(key("a"), pool="lab")  # by an instance that wrote a record and ended
    known = addresses.held()
    store = AddressStore(tmp_path / "state", POOLS, recorded=lambda: known)
    in_flight = store.reserve(key("b"), pool="lab")  # there is no record yet
    file = tmp_path / "state" / "addresses.json"
    file.unlink() if damage is None else file.write_bytes(damage)
    assert store.reserve(key("c"), pool="lab") not in (earlier, in_flight)
    assert store.reserve(key("b"), pool="lab") == in_flight
    assert [item.name for item in store.held()] == ["a", "b", "c"]
    if damage is not None:
        assert (tmp_path / "state" / "addresses.json.damaged").read_bytes() == damage


def test_release_on_a_full_disk_succeeds_and_is_written_later(tmp_path, alone):
    def work():
        syscalls.mount("tmpfs", str(tmp_path), "tmpfs", 0, "size=64k")
        store = AddressStore(tmp_path / "state", POOLS)
        given = store.reserve(key("a"), pool="lab")
        filler = fill(tmp_path)
        store.release("uid-a")
        filler.unlink()
        store.reserve(key("b"), wanted=given)
        assert [item.name for item in store.held()] == ["b"]

    alone(work)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version":1,"held":[{}]}'])
def test_damaged_assignments_are_restored_from_the_records(addresses, tmp_path, damage, caplog):
    given = {letter: addresses.reserve(key(letter), pool="lab") for letter in "ab"}
    known = addresses.held()
    (tmp_path / "state" / "addresses.json").write_bytes(damage)
    assert addresses.reconcile({"uid-a", "uid-b"}, known) == ()
    assert "quarantined damaged record" in caplog.text
    assert {letter: addresses.reserve(key(letter), pool="lab") for letter in "ab"} == given
    assert addresses.held() == known


def test_stale_assignments_are_completed_from_the_records(addresses, tmp_path):
    addresses.reserve(key("a"), pool="lab")
    before = (tmp_path / "state" / "addresses.json").read_bytes()
    given = addresses.reserve(key("b"), pool="lab")
    known = addresses.held()
    (tmp_path / "state" / "addresses.json").write_bytes(before)
    addresses.reconcile({"uid-a", "uid-b", "uid-c"}, known)
    assert addresses.held() == known
    assert addresses.reserve(key("b"), pool="lab") == given
    assert addresses.reserve(key("c"), pool="lab") not in (given, known[0].interfaces)


def test_assignments_of_a_newer_format_are_refused(addresses, tmp_path):
    addresses.reserve(key("a"), pool="lab")
    (tmp_path / "state" / "addresses.json").write_bytes(b'{"version": 2}')
    with pytest.raises(NewerFormat, match="written by a newer podwire"):
        addresses.reconcile({"uid-a"}, ())


def test_a_lock_that_is_held_too_long_is_named_in_the_error(addresses, tmp_path):
    addresses.reserve(key("a"), pool="lab")
    with (tmp_path / "state" / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="is locked by another process"):
            addresses.reserve(key("b"), pool="lab")
    assert addresses.reserve(key("b"), pool="lab")


@pytest.mark.parametrize(
    ("config", "reported"),
    [
        ({"a": 1}, "pools.a: is not an object"),
        ({"a": {}}, "pools.a: needs subnet or ranges"),
        ({"a": {"subnet": "10.0.0.1/24"}}, "pools.a.subnet: 10.0.0.1/24 has bits set beyond its prefix"),
        (
            {"a": {"subnet": "10.0.0.0/24", "range": 1}},
            "pools.a.range: unknown field; a pool has subnet, rangeStart, rangeEnd, gateway, ranges, exclude",
        ),
        (
            {"a": {"ranges": [[{"subnet": "x"}]]}},
            'pools.a.ranges[0][0].subnet: "x" is not a network such as 10.1.0.0/16',
        ),
        ({"a": {"ranges": [[3]]}}, "pools.a.ranges[0]: 3 is not an object"),
        (
            {"a": {"subnet": "10.0.0.0/29", "exclude": ["10.0.0.0/28"]}},
            "pools.a.exclude: nothing is left of 10.0.0.1 to 10.0.0.6",
        ),
    ],
)
def test_a_pool_that_makes_no_sense_is_refused_with_its_field(config, reported):
    with pytest.raises(Refused) as refused:
        parse_pools(config)
    assert str(refused.value) == reported


RESERVE = """
import sys
from podwire.dradriver.addresses.address_store import AddressStore
from podwire.dradriver.addresses.keys import Key
from podwire.dradriver.addresses.pools import parse_pools
from podwire.dradriver.claims.allocations import ClaimRef

pools = parse_pools({"big": {"subnet": "10.7.0.0/24"}})
for number in range(int(sys.argv[3])):
    claim = ClaimRef(namespace="default", name=f"{sys.argv[2]}{number}", uid=f"{sys.argv[2]}{number}")
    given = AddressStore(sys.argv[1], pools).reserve(Key(claim=claim, request="nic", device="eth1"), pool="big")
    print(*given, flush=True)
"""


def reserving(directory, who, many, failpoints=""):
    words = [sys.executable, "-c", RESERVE, str(directory), who, str(many)]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**os.environ, "PODWIRE_FAILPOINTS": failpoints}
    )


def test_two_drivers_at_once_never_give_one_address_twice(tmp_path):
    drivers = [reserving(tmp_path / "state", who, 40) for who in ("old", "new")]
    given = [line for driver in drivers for line in driver.communicate(timeout=60)[0].splitlines()]
    assert len(given) == len(set(given)) == 80


@pytest.mark.parametrize(
    ("where", "again"),
    [
        pytest.param("addresses.chosen", "10.7.0.2/24", id="before it was written"),
        pytest.param("addresses.written", "10.7.0.2/24", id="after it was written"),
    ],
)
def test_a_driver_that_is_killed_gives_the_same_afterwards(tmp_path, where, again):
    died = reserving(tmp_path / "state", "a", 1, f"{where}=kill")
    assert (died.communicate(timeout=60)[0], died.returncode) == ("", -signal.SIGKILL)
    assert reserving(tmp_path / "state", "a", 1).communicate(timeout=60)[0] == f"{again}\n"
    assert reserving(tmp_path / "state", "b", 1).communicate(timeout=60)[0] == "10.7.0.3/24\n"


class _Died(Exception):
    pass


class Whatever(RuleBasedStateMachine):
    """Any sequence of demands, returns, collections and crashes, by two drivers."""

    def __init__(self):
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.reported = {}

    def teardown(self):
        self._directory.cleanup()

    def addresses(self):
        return AddressStore(Path(self._directory.name) / "state", POOLS)

    @rule(
        claim=st.sampled_from("abcd"),
        device=st.sampled_from(["eth1", "eth2"]),
        pool=st.sampled_from(["", "lab", "dual", "part"]),
        static=st.sampled_from([(), ("10.9.0.4/29",), ("10.8.0.3/24",), ("192.0.2.1/24",)]),
        crash=st.sampled_from([None, None, "addresses.chosen", "addresses.written"]),
    )
    def reserve(self, claim, device, pool, static, crash):
        asked = {"pool": pool, "wanted": [ip_interface(item) for item in static]}
        dying(crash)
        try:
            given = self.addresses().reserve(key(claim, device), **asked)
        except (Refused, Exhausted):
            return
        except _Died:
            given = None
        finally:
            dying(None)
        again = self.addresses().reserve(key(claim, device), **asked)
        assert given in (None, again)
        self.reported[claim, device] = again

    @rule(claim=st.sampled_from("abcd"))
    def release(self, claim):
        self.addresses().release(f"uid-{claim}")
        self.reported = {who: what for who, what in self.reported.items() if who[0] != claim}

    @rule(live=st.sets(st.sampled_from("abcd")))
    def collect(self, live):
        self.addresses().reconcile({f"uid-{item}" for item in live}, ())
        self.reported = {who: what for who, what in self.reported.items() if who[0] in live}

    @invariant()
    def reported_addresses_are_held_and_no_address_is_of_two_claims(self):
        held = {(item.name, item.device): item.interfaces for item in self.addresses().held()}
        assert held == self.reported
        owners = {}
        for (claim, _), given in held.items():
            for entry in given:
                assert owners.setdefault(entry.ip, claim) == claim


def dying(where):
    """A failpoint in this process that ends the call instead of the process."""
    import podwire.dradriver.addresses.address_store as module

    def hit(name):
        if name == where:
            raise _Died

    module.failpoint = hit


@pytest.fixture(autouse=True)
def _failpoints(monkeypatch):
    import podwire.dradriver.addresses.address_store as module

    monkeypatch.setattr(module, "failpoint", module.failpoint)


@pytest.mark.usefixtures("_failpoints")
class TestWhatever(Whatever.TestCase):
    settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
