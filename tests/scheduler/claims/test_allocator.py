"""Devices that claims get on a node, rule by rule."""

import pytest

from podwire.objects import claims
from podwire.scheduler.claims import claim_requests
from podwire.scheduler.claims.allocator import Aborted, Budget, BudgetExceeded, SearchContext, search
from podwire.scheduler.claims.claim_requests import Unsatisfiable

A = 'device.attributes["net.example.com"]'


def found(words, claim_cache, *wanted, node=None, budget=None):
    """The names of devices by claim; None when they cannot all be had."""
    node = node or words.node("n1")
    asked = [claim_requests.of_claim(claims.read(item), claim_cache.classes) for item in wanted]
    context = SearchContext(
        node, claim_cache.inventory.near(node.name), claim_cache.allocated_devices, budget or Budget()
    )
    solved = search(asked, context)
    return solved and [[f"{pick.subrequest.name}={pick.candidate.name}" for pick in picks] for picks in solved]


@pytest.fixture
def given(words):
    """The share of some devices that one claim gets on a node."""

    def of(devices, *requests, constraints=(), held=(), classes=None, rules=()):
        claim_cache = words.claim_cache(
            slices_=[words.slice("n1", devices)],
            classes=classes,
            claims_=[words.claim("other", status=words.allocated(*held))] if held else (),
            rules=rules,
        )
        solved = found(words, claim_cache, words.claim("nic", *requests, constraints=constraints))
        return solved and solved[0]

    return of


@pytest.mark.parametrize(
    ("count", "held", "picked"),
    [
        pytest.param(1, (), ["nic=a"], id="the first in order"),
        pytest.param(1, ("a",), ["nic=b"], id="the first that nobody holds"),
        pytest.param(2, ("b",), ["nic=a", "nic=c"], id="as many as asked for"),
        pytest.param(3, ("b",), None, id="all or none"),
    ],
)
def test_a_request_gets_as_many_devices_as_it_asks_for(words, given, count, held, picked):
    devices = [words.device(letter) for letter in "abc"]
    assert given(devices, words.request(count=count), held=held) == picked


def test_devices_are_taken_in_the_order_of_the_slices_and_not_of_their_names(words, given):
    assert given([words.device("z"), words.device("a")], words.request()) == ["nic=z"]


@pytest.mark.parametrize(
    ("expression", "picked"),
    [
        pytest.param(f"{A}.mtu >= 9000", "b", id="a number"),
        pytest.param(f'{A}.kind == "veth"', "a", id="a text"),
        pytest.param(f"{A}.rdma", "b", id="a boolean"),
        pytest.param(f'{A}.firmware.isGreaterThan(semver("1.2.0"))', "b", id="a version"),
        pytest.param('device.capacity["net.example.com"].bandwidth.compareTo(quantity("10Gi")) >= 0', "b", id="amount"),
        pytest.param('device.driver == "net.example.com"', "a", id="the driver"),
        pytest.param(f'{A}.?alias.orValue("none") == "fast"', "b", id="an attribute that only some have"),
        pytest.param('device.attributes["else.where"].?x.orValue(0) == 0', "a", id="a domain that none has"),
        pytest.param('"else.where" in device.attributes', None, id="a domain that none has is not there"),
        pytest.param(f'cel.bind(own, {A}, own.mtu > 1500 && own.kind != "veth")', "b", id="a binding"),
        pytest.param('device.attributes["pci.example.com"].root == "pci0"', "a", id="an attribute of another domain"),
    ],
)
def test_selectors_see_the_device(words, given, expression, picked):
    more = {"pci.example.com__root": "pci0"}
    small = words.device("a", mtu=1500, kind="veth", rdma=False, firmware={"version": "1.0.0"},
                         capacity={"bandwidth": "1Gi"}, **more)  # fmt: skip
    large = words.device("b", mtu=9000, kind="pci", rdma=True, alias="fast", firmware={"version": "1.10.0"},
                         capacity={"bandwidth": "10Gi"}, **more)  # fmt: skip
    assert given([small, large], words.request("nic", expression)) == (picked and [f"nic={picked}"])


def test_the_class_and_the_request_must_both_select_a_device(words, given):
    devices = [words.device("a", mtu=1500, up=True), words.device("b", mtu=9000, up=False),
               words.device("c", mtu=9000, up=True)]  # fmt: skip
    classes = [words.class_("nic", f"{A}.up")]
    assert given(devices, words.request("nic", f"{A}.mtu == 9000"), classes=classes) == ["nic=c"]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        pytest.param(f"{A}.nosuch == 1", "device net.example.com/n1/a: selector #0: runtime error: no such key: nosuch",
                     id="no such attribute"),
        pytest.param(f"{A}.mtu", "runtime error: the result is not a boolean", id="not a boolean"),
        pytest.param("device.nosuch", "CEL compile error", id="no such field"),
        pytest.param(" || ".join([f'{A}.all(a, {A}.all(b, {A}.all(c, a + b + c != "x")))'] * 8),
                     "too complex, exceeds cost limit", id="too costly"),
    ],
)  # fmt: skip
def test_an_expression_that_fails_ends_the_search(words, given, expression, why):
    with pytest.raises(Aborted) as reported:
        given([words.device("a", mtu=1500)], words.request("nic", expression))
    assert why in str(reported.value)


def test_an_expression_is_not_evaluated_on_allocated_or_unreached_devices(words, given):
    devices = [words.device("a"), words.device("b", mtu=1), words.device("c")]
    assert given(devices, words.request("nic", f"{A}.mtu == 1"), held=("a",)) == ["nic=b"]


def test_a_device_that_a_later_request_needs_is_left_to_it(words, given):
    devices = [words.device("a", mtu=9000), words.device("b", mtu=1500)]
    picked = given(devices, words.request("any"), words.request("large", f"{A}.mtu == 9000"))
    assert picked == ["any=b", "large=a"]


def test_claims_of_one_pod_do_not_take_each_others_devices(words):
    claim_cache = words.claim_cache(slices_=[words.slice("n1", [words.device("a"), words.device("b")])])
    assert found(words, claim_cache, words.claim("one"), words.claim("two")) == [["nic=a"], ["nic=b"]]
    assert found(words, claim_cache, words.claim("one", words.request(count=2)), words.claim("two")) is None


@pytest.mark.parametrize(
    ("devices", "held", "picked"),
    [
        pytest.param("ab", (), ["nic=a", "nic=b"], id="every one"),
        pytest.param("ab", ("b",), None, id="not when one is held"),
        pytest.param("", (), None, id="not when there is none"),
    ],
)
def test_all_means_every_device_and_at_least_one(words, given, devices, held, picked):
    made = [words.device(item) for item in devices]
    assert given(made, words.request(allocationMode="All"), held=held) == picked


def test_all_waits_for_pools_that_are_being_rewritten_and_others_do_not(words):
    whole = words.slice("n1", [words.device("a")])
    part = words.slice("n1", [words.device("b")], name="part", pool="other", count=2)
    claim_cache = words.claim_cache(slices_=[whole, part])
    assert found(words, claim_cache, words.claim("nic", words.request(allocationMode="All"))) is None
    assert found(words, claim_cache, words.claim("nic", words.request(count=2))) is None
    assert found(words, claim_cache, words.claim("nic")) == [["nic=a"]]


def test_only_the_newest_generation_of_a_pool_counts(words):
    old = words.slice("n1", [words.device("a")], name="old", generation=1)
    new = words.slice("n1", [words.device("b")], name="new", generation=2)
    assert found(words, words.claim_cache(slices_=[old, new]), words.claim()) == [["nic=b"]]


def test_a_pool_that_names_a_device_twice_is_not_used(words):
    slices = [words.slice("n1", [words.device("a")], name=item, count=2) for item in ("one", "two")]
    assert found(words, words.claim_cache(slices_=slices), words.claim()) is None


def test_admins_look_at_devices_that_others_hold_and_hold_none(words, given):
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [words.device("a"), words.device("b")])],
        claims_=[
            words.claim("other", status=words.allocated("a")),
            words.claim("admin", status=words.allocated("b", adminAccess=True)),
        ],
    )
    looking = words.claim("look", words.request(allocationMode="All", adminAccess=True))
    assert found(words, claim_cache, looking) == [["nic=a", "nic=b"]]
    assert found(words, claim_cache, words.claim()) == [["nic=b"]]


def test_the_first_alternative_that_can_be_had_is_taken(words, given):
    either = {"name": "nic", "firstAvailable": [words.subrequest("fast", f"{A}.mtu == 9000"), words.subrequest("slow")]}
    devices = [words.device("a", mtu=1500), words.device("b", mtu=9000)]
    assert given(devices, either) == ["nic/fast=b"]
    assert given(devices, either, held=("b",)) == ["nic/slow=a"]
    assert given(devices, either, held=("a", "b")) is None


def test_a_later_alternative_is_taken_when_the_first_leaves_nothing_for_the_others(words, given):
    either = {"name": "nic", "firstAvailable": [words.subrequest("two", count=2), words.subrequest("one")]}
    assert given([words.device("a"), words.device("b")], either, words.request("more")) == ["nic/one=a", "more=b"]


LIKE, UNLIKE = {"matchAttribute": "net.example.com/numa"}, {"distinctAttribute": "net.example.com/numa"}


@pytest.mark.parametrize(
    ("constraint", "numas", "picked"),
    [
        pytest.param(LIKE, (0, 1, 1), ["b", "c"], id="alike"),
        pytest.param(LIKE, (0, 1, 2), None, id="none alike"),
        pytest.param(LIKE, (0, "0", 0), ["a", "c"], id="of one type"),
        pytest.param(LIKE, (None, 0, 0), ["b", "c"], id="only devices that have it"),
        pytest.param(
            LIKE, ({"ints": [0, 1]}, {"ints": [2]}, {"ints": [1]}), ["a", "c"], id="lists with a common value"
        ),
        pytest.param(UNLIKE, (0, 0, 1), ["a", "c"], id="different"),
        pytest.param(UNLIKE, (0, 0, 0), None, id="none different"),
        pytest.param(UNLIKE, (0, None, 1), ["a", "c"], id="only devices that have it, too"),
        pytest.param(UNLIKE, ({"ints": [0, 1]}, {"ints": [1]}, {"ints": [2]}), ["a", "c"], id="disjoint lists"),
        pytest.param({**LIKE, "requests": ["else"]}, (0, 1, 1), ["a", "b"], id="another request's business"),
    ],
)
def test_constraints_tie_devices_together(words, given, constraint, numas, picked):
    devices = [
        words.device(name, **({} if numa is None else {"numa": numa})) for name, numa in zip("abc", numas, strict=True)
    ]
    found = given(devices, words.request(count=2), constraints=[constraint])
    assert found == (picked and [f"nic={item}" for item in picked])


def test_an_attribute_of_the_drivers_own_domain_is_found_by_either_name(words, given):
    devices = [words.device("a", numa=0), words.device("b", **{"net.example.com__numa": 0})]
    assert given(devices, words.request(count=2), constraints=[LIKE]) == ["nic=a", "nic=b"]


TAINT = {"key": "broken", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("taint", "tolerations", "usable"),
    [
        pytest.param(TAINT, [], False, id="a taint keeps everybody away"),
        pytest.param({**TAINT, "effect": "NoExecute"}, [], False, id="so does one that evicts"),
        pytest.param({**TAINT, "effect": "None"}, [], True, id="but not one that only tells"),
        pytest.param(TAINT, [{"key": "broken", "operator": "Exists"}], True, id="unless it is tolerated"),
        pytest.param(TAINT, [{"key": "broken", "operator": "Equal", "value": "no"}], False, id="as it is"),
    ],
)
def test_taints_keep_claims_away_that_do_not_tolerate_them(words, given, taint, tolerations, usable):
    wanted = words.request(tolerations=tolerations)
    assert bool(given([words.device("a", taints=[taint])], wanted)) is usable
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"device": "a"}, "taint": taint}}
    assert bool(given([words.device("a")], wanted, rules=[rule])) is usable


def shared(words, held=(), **policy):
    """A device of 10 that is shared, and what others hold of it."""
    device = words.device("a", shared=True, numa=0, capacity={"bandwidth": "10"}, policies={"bandwidth": policy})
    holders = [
        words.claim(f"c{at}", status=words.allocated("a", shareID=f"s{at}", consumedCapacity={"bandwidth": each}))
        for at, each in enumerate(held)
    ]
    return words.claim_cache(slices_=[words.slice("n1", [device])], claims_=holders)


def asking(words, amount=None, **given):
    capacity = {} if amount is None else {"capacity": {"requests": {"bandwidth": amount}}}
    return words.claim("nic", words.request(**capacity, **given))


VALUES = {"validValues": ["1", "4", "8"], "default": "4"}
RANGE = {"validRange": {"min": "2", "max": "8", "step": "3"}, "default": "5"}


@pytest.mark.parametrize(
    ("policy", "held", "amount", "taken"),
    [
        pytest.param({}, (), "3", 3, id="as much as asked for"),
        pytest.param({}, (), None, 10, id="all of it without a request or a policy"),
        pytest.param({}, ("3", "4"), "3", 3, id="what others leave"),
        pytest.param({}, ("3", "5"), "3", None, id="not more than that"),
        pytest.param({}, (), "11", None, id="not more than there is"),
        pytest.param(VALUES, (), None, 4, id="the default"),
        pytest.param(VALUES, (), "2", 4, id="rounded up to a value"),
        pytest.param(VALUES, (), "9", None, id="no such value"),
        pytest.param(VALUES, ("8",), "2", None, id="no space for the value"),
        pytest.param(RANGE, (), "1", 2, id="the least"),
        pytest.param(RANGE, (), "3", 5, id="rounded up by steps"),
        pytest.param(RANGE, (), "9", None, id="more than the most"),
    ],
)
def test_a_shared_device_gives_its_remaining_capacity(words, policy, held, amount, taken):
    claim_cache = shared(words, held, **policy)
    asked = claim_requests.of_claim(claims.read(asking(words, amount)), claim_cache.classes)
    context = SearchContext(words.node("n1"), claim_cache.inventory.near("n1"), claim_cache.allocated_devices, Budget())
    solved = search([asked], context)
    amounts = solved and {name: nano // 10**9 for name, nano in solved[0][0].amounts.items()}
    assert amounts == (taken and {"bandwidth": taken})


def test_one_claim_may_take_several_shares_of_a_device_as_long_as_they_fit(words):
    assert found(words, shared(words), asking(words, "4", count=2)) == [["nic=a", "nic=a"]]
    assert found(words, shared(words), asking(words, "4", count=3)) is None
    apart = words.claim("nic", words.request(count=2, capacity={"requests": {"bandwidth": "4"}}),
                        constraints=[{"distinctAttribute": "net.example.com/numa"}])  # fmt: skip
    assert found(words, shared(words), apart) is None


def test_a_device_that_is_not_shared_must_have_the_capacity_asked_for(words, given):
    devices = [words.device("a", capacity={"bandwidth": "1"}), words.device("b"),
               words.device("c", capacity={"bandwidth": "5"})]  # fmt: skip
    assert given(devices, words.request(capacity={"requests": {"bandwidth": "2"}})) == ["nic=c"]


@pytest.mark.parametrize("field", ["bindingConditions", "consumesCounters"])
def test_devices_that_need_unsupported_features_are_ignored(words, given, field):
    value = ["ready"] if field == "bindingConditions" else [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]
    assert given([{**words.device("a"), field: value}, words.device("b")], words.request()) == ["nic=b"]


@pytest.mark.parametrize(
    ("where", "reached"),
    [
        pytest.param({"nodeName": "n1"}, True, id="this node"),
        pytest.param({"nodeName": "n2"}, False, id="another node"),
        pytest.param({"allNodes": True}, True, id="all nodes"),
        pytest.param({"nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}}, True, id="nodes by label"),
        pytest.param({"nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r2"]}]}]}}, False, id="other labels"),
    ],
)  # fmt: skip
def test_devices_are_used_where_they_can_be_reached(words, where, reached):
    node = words.node("n1", rack="r1")
    whole = words.slice("n1", [words.device("a")], pool="p", **where)
    each = words.slice("n1", [{**words.device("a"), **where}], pool="p", perDeviceNodeSelection=True)
    for slice_ in (whole, each):
        assert bool(found(words, words.claim_cache(slices_=[slice_]), words.claim(), node=node)) is reached


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        pytest.param({"class_name": "none"}, "request nic: device class none does not exist", id="no such class"),
        pytest.param({"count": 33}, "number of devices requested exceeds the claim limit of 32: 33", id="too many"),
        pytest.param({"allocationMode": "Some"}, "request nic: unsupported count mode Some", id="an unknown mode"),
    ],
)
def test_a_claim_that_no_node_can_satisfy_is_reported_at_once(words, given, request_, why):
    with pytest.raises(Unsatisfiable, match=why):
        given([words.device("a")], words.request(**request_))


def test_a_claim_never_gets_more_than_32_devices(words, given):
    devices = [words.device(f"d{number}") for number in range(33)]
    assert given(devices, words.request(allocationMode="All")) is None
    assert len(given(devices[:32], words.request(allocationMode="All"))) == 32


def test_a_search_that_would_take_for_ever_is_given_up(words):
    devices = [words.device(f"d{number}", numa=number) for number in range(30)]
    claim_cache = words.claim_cache(slices_=[words.slice("n1", devices)])
    wanted = words.claim("nic", words.request("a", count=15), words.request("b", count=14),
                         words.request("c", f"{A}.numa == 99"))  # fmt: skip
    with pytest.raises(BudgetExceeded):
        found(words, claim_cache, wanted, budget=Budget(1000))
