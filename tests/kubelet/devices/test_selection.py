"""Allocation of devices: never those of another pod, all or none, near to each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kubelet.devices.pool import Device, Pool
from podwire.kubelet.devices.requests import DeviceRequest, device_requests
from podwire.kubelet.devices.selection import NotEnoughDevices, PreferenceQuery, aligned, select_devices
from podwire.kubelet.devices.topology import TopologyAffinityError
from podwire.objects import pods

NIC, GPU = "example.org/nic", "example.org/gpu"


def total(wanted: list[DeviceRequest]) -> dict[str, int]:
    """How many devices the whole pod needs at once."""
    running: dict[str, int] = {}
    most: dict[str, int] = {}
    for wish in wanted:
        for name, count in wish.counts.items():
            if not wish.passes_on:
                running[name] = running.get(name, 0) + count
            most[name] = max(most.get(name, 0), running.get(name, 0) + (count if wish.passes_on else 0))
    return most


def pool(*devices, held=()):
    made = Pool()
    made.hold(held)
    made.update({device.id: device for device in devices})
    return made


def near(node, *ids):
    return [Device(id_, nodes=frozenset(node)) for id_ in ids]


def wish(container="c", passes_on=False, **counts):
    names = {"nic": NIC, "gpu": GPU}
    return DeviceRequest(
        container=container, counts={names[key]: count for key, count in counts.items()}, passes_on=passes_on
    )


def led(choosing, answer=lambda question: ()):
    try:
        question = next(choosing)
        while True:
            question = choosing.send(answer(question))
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize(
    ("devices", "wanted", "chosen"),
    [
        pytest.param(near((), "b", "a", "c"), [wish(nic=2)], {"c": {NIC: ("a", "b")}}, id="the first by name"),
        pytest.param(
            [*near({0}, "a"), *near({1}, "b", "c")], [wish(nic=2)], {"c": {NIC: ("b", "c")}}, id="where all are near"
        ),
        pytest.param(
            [*near({0}, "a"), *near({1}, "b")], [wish(nic=2)], {"c": {NIC: ("a", "b")}}, id="far rather than not"
        ),
        pytest.param(
            near((), "a", "b"),
            [wish("i", passes_on=True, nic=1), wish("c", nic=2)],
            {"i": {NIC: ("a",)}, "c": {NIC: ("a", "b")}},
            id="what an init container had",
        ),
        pytest.param(
            near((), "a", "b"),
            [wish("s", nic=1), wish("c", nic=1)],
            {"s": {NIC: ("a",)}, "c": {NIC: ("b",)}},
            id="not what a sidecar has",
        ),
        pytest.param(
            near((), "a", "b"),
            [wish("i", passes_on=True, nic=2), wish("c", nic=1), wish("d", nic=1)],
            {"i": {NIC: ("a", "b")}, "c": {NIC: ("a",)}, "d": {NIC: ("b",)}},
            id="passed on to two",
        ),
        pytest.param(
            [*near({0}, "a", "b"), *near({1}, "c", "d")],
            [wish("c", nic=1), wish("d", nic=1)],
            {"c": {NIC: ("a",)}, "d": {NIC: ("b",)}},
            id="the second container stays near the first",
        ),
    ],
)
def test_a_pod_gets(devices, wanted, chosen):
    assert led(select_devices(wanted, {NIC: pool(*devices)})) == chosen


def test_resources_of_a_container_are_near_to_each_other():
    pools = {NIC: pool(*near({0}, "n0"), *near({1}, "n1")), GPU: pool(*near({1}, "g1"), *near({2}, "g2"))}
    assert led(select_devices([wish(nic=1, gpu=1)], pools)) == {"c": {NIC: ("n1",), GPU: ("g1",)}}


def test_held_or_unhealthy_devices_are_not_selected():
    devices = [*near((), "a", "b"), Device("c", healthy=False)]
    with pytest.raises(NotEnoughDevices, match=f"{NIC}: 2 wanted, 1 free"):
        led(select_devices([wish(nic=2)], {NIC: pool(*devices, held=["a"])}))


def test_a_plugin_is_asked_among_those_that_are_near():
    devices = [*near({0}, "a", "b", "c"), *near({1}, "d")]
    questions = []

    def answer(question):
        questions.append(question)
        return ["c", "b"]

    chosen = led(select_devices([wish(nic=2)], {NIC: pool(*devices)}, has_preference=lambda _: True), answer)
    assert chosen == {"c": {NIC: ("c", "b")}}
    assert questions == [PreferenceQuery(resource=NIC, available=("a", "b", "c"), must=(), size=2)]


@pytest.mark.parametrize(
    "answer", [[], ["z"], ["b", "b"], ["x", "b", "c", "a"]], ids=["nothing", "not there", "twice", "too many"]
)
def test_a_plugin_that_answers_nonsense_is_not_obeyed_in_that(answer):
    chosen = led(
        select_devices([wish(nic=2)], {NIC: pool(*near((), "a", "b", "c"))}, has_preference=lambda _: True),
        lambda _: answer,
    )
    ids = chosen["c"][NIC]
    assert len(set(ids)) == 2
    assert set(ids) <= {"a", "b", "c"}


def test_devices_that_the_pod_holds_are_selected_first():
    chosen = led(select_devices([wish(nic=2)], {NIC: pool(*near((), "a", "b", "c"), held=["c"])}, own={NIC: ["c"]}))
    assert chosen == {"c": {NIC: ("c", "a")}}


@pytest.mark.parametrize(
    ("demands", "before", "found"),
    [
        ([({frozenset({0}): 1, frozenset({1}): 2}, 2)], frozenset(), {1}),
        ([({frozenset({0}): 2, frozenset({1}): 2}, 2)], frozenset({1}), {1}),
        ([({frozenset({0}): 1, frozenset({1}): 1}, 2)], frozenset(), {0, 1}),
        ([({frozenset(): 5}, 2)], frozenset(), set()),
        ([({frozenset({0}): 1}, 2)], frozenset(), set()),
        ([({frozenset({0, 1}): 1}, 1)], frozenset(), {0}),
    ],
    ids=["one node", "the same as before", "two nodes", "near to none", "not enough", "near to two"],
)
def test_the_fewest_nodes_that_have_enough(demands, before, found):
    assert aligned(demands, before) == found


IDS = st.sampled_from([f"d{number}" for number in range(12)])
DEVICES = st.builds(Device, IDS, st.booleans(), st.frozensets(st.integers(0, 2), max_size=2))


@given(
    devices=st.lists(DEVICES, max_size=12),
    held=st.sets(IDS),
    counts=st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=4),
    answers=st.lists(st.lists(IDS, max_size=5), max_size=4),
)
def test_all_or_nothing_and_nothing_twice(devices, held, counts, answers):
    made = pool(*devices, held=held)
    wanted = [wish(f"c{at}", passes_on, nic=count) for at, (count, passes_on) in enumerate(counts)]
    left = iter(answers)
    free = {item for item in (one.id for one in devices) if made.is_free(item)}
    try:
        chosen = led(select_devices(wanted, {NIC: made}, has_preference=lambda _: True), lambda _: next(left, []))
    except NotEnoughDevices:
        assert len(free) < total(wanted)[NIC]
        return
    running = [item for wish_ in wanted if not wish_.passes_on for item in chosen[wish_.container][NIC]]
    assert len(running) == len(set(running))
    for wish_ in wanted:
        ids = chosen[wish_.container][NIC]
        assert len(set(ids)) == len(ids) == wish_.counts[NIC]
        assert set(ids) <= free


@given(st.lists(st.tuples(st.sampled_from(["hold", "free", "ill", "well"]), IDS), max_size=60))
def test_free_devices_are_healthy_and_not_held(steps):
    devices = {f"d{number}": Device(f"d{number}", nodes=frozenset({number % 2})) for number in range(12)}
    made, held = pool(*devices.values()), set()
    for what, id_ in steps:
        match what:
            case "hold":
                made.hold([id_])
                held.add(id_)
            case "free":
                made.release([id_])
                held.discard(id_)
            case _:
                devices[id_] = devices[id_]._replace(healthy=what == "well")
                made.update(devices)
    expected = sorted(id_ for id_, each in devices.items() if each.healthy and id_ not in held)
    assert sorted(made.free()) == sorted(made.first(99, set())) == expected
    assert (made.capacity, made.allocatable) == (12, sum(device.healthy for device in devices.values()))
    assert sum(made.sizes().values()) == len(expected)


def test_a_pod_requests_devices_by_its_limits():
    def container(name, count, **more):
        return {"name": name, "resources": {"limits": {NIC: count, "cpu": "1"}}, **more}

    pod = pods.read(
        {
            "metadata": {"name": "p"},
            "spec": {
                "initContainers": [container("i", 2), container("s", "1", restartPolicy="Always")],
                "containers": [container("c", "1"), container("d", 0), {"name": "e"}],
            },
        }
    )
    found = device_requests(pod, {NIC})
    assert [(item.container, item.counts, item.passes_on) for item in found] == [
        ("i", {NIC: 2}, True),
        ("s", {NIC: 1}, False),
        ("c", {NIC: 1}, False),
    ]
    assert total(found) == {NIC: 2}
    assert device_requests(pod, set()) == []


SPLIT = [*near({0}, "a", "b"), *near({1}, "c", "d")]


@pytest.mark.parametrize(
    ("policy", "devices", "held", "count", "chosen"),
    [
        pytest.param("none", SPLIT, ["a"], 2, ("b", "c"), id="none takes the first"),
        pytest.param("best-effort", SPLIT, ["a"], 2, ("c", "d"), id="best-effort takes those that are near"),
        pytest.param("best-effort", SPLIT, ["a", "c"], 2, ("b", "d"), id="best-effort takes what there is"),
        pytest.param("restricted", SPLIT, ["a"], 2, ("c", "d"), id="restricted takes those that are near"),
        pytest.param("restricted", SPLIT, ["a", "c"], 2, None, id="restricted: two could be near to one node"),
        pytest.param("restricted", SPLIT, [], 3, ("a", "b", "c"), id="restricted: three never could"),
        pytest.param("single-numa-node", SPLIT, ["a"], 2, ("c", "d"), id="one node has two"),
        pytest.param("single-numa-node", SPLIT, [], 3, None, id="no node has three"),
        pytest.param("single-numa-node", near((), "a", "b"), [], 2, ("a", "b"), id="near to no node in particular"),
        pytest.param("restricted", near((), "a", "b"), ["a"], 1, ("b",), id="restricted without nodes"),
        pytest.param("single-numa-node", near({0, 1}, "a", "b"), [], 2, ("a", "b"), id="near to both nodes"),
    ],
)
def test_how_near_devices_have_to_be_is_the_policy_of_the_node(policy, devices, held, count, chosen):
    choosing = select_devices([wish(nic=count)], {NIC: pool(*devices, held=held)}, policy=policy)
    if chosen is None:
        with pytest.raises(TopologyAffinityError, match="Resources cannot be allocated with Topology locality"):
            led(choosing)
    else:
        assert led(choosing) == {"c": {NIC: chosen}}


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_a_pod_that_waits_for_devices_gets_no_topology_error(policy):
    with pytest.raises(NotEnoughDevices):
        led(select_devices([wish(nic=4)], {NIC: pool(*SPLIT, held=["a"])}, policy=policy))


def test_all_resources_of_a_container_are_near_to_the_same_node():
    pools = {NIC: pool(*near({0}, "n0"), *near({1}, "n1"), held=["n1"]), GPU: pool(*near({1}, "g1"))}
    with pytest.raises(TopologyAffinityError):
        led(select_devices([wish(nic=1, gpu=1)], pools, policy="single-numa-node"))
    assert led(select_devices([wish(nic=1), wish("d", gpu=1)], pools, policy="single-numa-node")) == {
        "c": {NIC: ("n0",)},
        "d": {GPU: ("g1",)},
    }
