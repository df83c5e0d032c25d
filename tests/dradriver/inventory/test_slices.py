"""Writes that bring slices to their desired state, and the states that readers see in between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.dradriver.publish.slices import Create, Delete, Pool, Replace, Write, plan, slice_name
from podwire.objects import names

POOL = Pool("net.podwire.dev", "n1")


def devices(*which: str) -> list[dict]:
    return [{"name": item} for item in which]


def published(number: int, *which: str, generation: int = 1, count: int = 1, name: str = "", pool: str = "n1") -> dict:
    spec = {
        "driver": "net.podwire.dev",
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "nodeName": "n1",
        "devices": devices(*which),
    }
    return {"metadata": {"name": name or slice_name(POOL, number), "uid": f"{number}"}, "spec": spec}


def reported(writes: list[Write]) -> list[str]:
    """create 0@1/2[a b]: the slice's number, generation, count, devices."""
    found = []
    for write in writes:
        number = write.name.removesuffix("-net.podwire.dev-n1").lstrip("0") or "0"
        if isinstance(write, Delete):
            found.append(f"delete {number}")
            continue
        pool = write.spec["pool"]
        what = " ".join(device["name"] for device in write.spec["devices"])
        verb = "create" if isinstance(write, Create) else "replace"
        found.append(f"{verb} {number}@{pool['generation']}/{pool['resourceSliceCount']}[{what}]")
    return found


@pytest.mark.parametrize(
    ("before", "wanted", "expected"),
    [
        pytest.param([], [devices()], ["create 0@1/1[]"], id="an empty slice says nothing"),
        pytest.param([], [devices("a")], ["create 0@1/1[a]"], id="the first"),
        pytest.param([published(0, "a")], [devices("a")], [], id="nothing to do"),
        pytest.param([published(0, "a")], [devices("a", "b")], ["replace 0@1/1[a b]"], id="one changes in place"),
        pytest.param([published(0, "a", generation=7)], [devices()], ["replace 0@7/1[]"], id="also to nothing"),
        pytest.param(
            [published(0, "a")], [devices("a"), devices("b")], ["replace 0@2/2[a]", "create 1@2/2[b]"], id="one more"
        ),
        pytest.param(
            [published(0, "a", count=2), published(1, "b", count=2)],
            [devices("a", "b")],
            ["replace 0@2/1[a b]", "delete 1"],
            id="one less goes last",
        ),
        pytest.param(
            [published(0, "a", count=2), published(1, "b", count=2)],
            [devices("b"), devices("a")],
            ["replace 0@2/2[b]", "replace 1@2/2[a]"],
            id="two that change are a new generation",
        ),
        pytest.param(
            [published(0, "a", count=2), published(1, "b", count=2)],
            [devices("a"), devices("c")],
            ["replace 1@1/2[c]"],
            id="one of two changes in place",
        ),
        pytest.param([published(1, "b", count=2)], [devices("a"), devices("b")], ["create 0@1/2[a]"], id="put back"),
        pytest.param(
            [published(1, "b", count=2)],
            [devices("a"), devices("c")],
            ["create 0@2/2[a]", "replace 1@2/2[c]"],
            id="put back, and another has changed",
        ),
        pytest.param(
            [published(0, "a", generation=2, count=2), published(1, "b", generation=1, count=2)],
            [devices("a"), devices("b")],
            ["replace 0@3/2[a]", "replace 1@3/2[b]"],
            id="one that was left in the middle",
        ),
        pytest.param(
            [published(0, "a", name="00000-net.podwire.dev-n1-x7k2p", generation=4)],
            [devices("a")],
            ["create 0@5/1[a]", "delete -net.podwire.dev-n1-x7k2p"],
            id="an older layout goes last, below ours",
        ),
        pytest.param(
            [published(0, "a", name="old", pool="other")], [devices("a")], ["delete old", "create 0@1/1[a]"],
            id="another pool with our devices goes first",
        ),
    ],
)  # fmt: skip
def test_the_fewest_writes_that_no_reader_can_misread(before, wanted, expected):
    assert reported(plan(POOL, before, wanted)) == expected


def test_a_generation_is_never_used_twice():
    assert reported(plan(POOL, [], [devices("a")], least=7)) == ["create 0@8/1[a]"]


def test_field_that_the_server_drops_is_not_written_again():
    sent = published(0, "a")["spec"]
    wanted = [[{"name": "a", "allowMultipleAllocations": True}]]
    sent = {**sent, "devices": wanted[0]}
    kept = published(0, "a")
    assert reported(plan(POOL, [kept], wanted)) == ["replace 0@1/1[a]"]
    answers = {slice_name(POOL, 0): (sent, kept["spec"])}
    assert plan(POOL, [kept], wanted, answers=answers) == []
    assert reported(plan(POOL, [kept], [devices("b")], answers=answers)) == ["replace 0@1/1[b]"]


def test_changed_time_of_a_taint_alone_is_not_written():
    before = published(0)
    before["spec"]["devices"] = [{"name": "a", "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "then"}]}]
    later = [[{"name": "a", "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "now"}]}]]
    assert plan(POOL, [before], later) == []


@pytest.mark.parametrize("node", ["n1", "a" * 253, ".".join(["a" * 60] * 4), "a" * 180 + "-" + "b" * 72])
def test_slice_name_is_valid_for_any_node_name(node):
    found = {slice_name(Pool("net.podwire.dev", node), number) for number in (0, 1, 0xFFFFF)}
    assert len(found) == 3
    assert all(list(names.dns_subdomain(item)) == [] for item in found)


def test_long_names_of_nodes_stay_apart():
    assert slice_name(Pool("d", "a" * 250 + "x"), 0) != slice_name(Pool("d", "a" * 250 + "y"), 0)


def applied(slices: dict[str, dict], write: Write) -> None:
    match write:
        case Create(name, spec):
            assert name not in slices
            slices[name] = {"metadata": {"name": name}, "spec": spec}
        case Replace(name, spec, seen):
            assert slices[name] is seen
            slices[name] = {"metadata": {"name": name}, "spec": spec}
        case Delete(name, _):
            del slices[name]


def readable(slices: dict[str, dict]) -> list[str]:
    """The devices of the highest generation that is complete."""
    by_generation: dict[int, list[dict]] = {}
    for device_slice in slices.values():
        by_generation.setdefault(device_slice["spec"]["pool"]["generation"], []).append(device_slice["spec"])
    for _, specs in sorted(by_generation.items(), reverse=True):
        if all(spec["pool"]["resourceSliceCount"] == len(specs) for spec in specs):
            return [device["name"] for spec in specs for device in spec["devices"]]
    return []


LAYOUTS = st.lists(st.integers(0, 3), min_size=0, max_size=12).map(
    lambda cuts: [
        [{"name": f"d{at}"} for at, place in enumerate(cuts) if place == number]
        for number in range(max(cuts, default=0) + 1)
    ]
)
STEPS = st.tuples(LAYOUTS, st.integers(0, 6), st.sets(st.integers(0, 3), max_size=2), st.booleans())


@given(st.lists(STEPS, min_size=1, max_size=6))
def test_no_reader_ever_sees_a_device_twice(steps):
    """Writers stop anywhere, forget what they knew, and others delete slices meanwhile."""
    slices: dict[str, dict] = {}
    least = 0
    for wanted, stop, deleted, forgets in steps:
        least = 0 if forgets else least
        for write in plan(POOL, list(slices.values()), wanted, least=least)[:stop]:
            applied(slices, write)
            least = max([least, *(device_slice["spec"]["pool"]["generation"] for device_slice in slices.values())])
            seen = readable(slices)
            assert len(seen) == len(set(seen))
        for number in deleted:
            slices.pop(slice_name(POOL, number), None)
            seen = readable(slices)
            assert len(seen) == len(set(seen))
    wanted = steps[-1][0]
    for write in plan(POOL, list(slices.values()), wanted, least=least):
        applied(slices, write)
    assert sorted(readable(slices)) == sorted(item["name"] for part in wanted for item in part)
    assert plan(POOL, list(slices.values()), wanted, least=least) == []
