"""Items by a field's text: whatever was written, an index finds what a scan finds."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.storage import Condition, Field, Item
from podwire.store.field_index import AT_ONCE, FieldIndexes
from podwire.store.memory import MemoryStore
from podwire.store.versions import Versions, decide

PODS = "/registry/pods/"
NODE = Field("node", lambda item: item.value.decode().split(",")[0])
PHASE = Field("phase", lambda item: item.value.decode().split(",")[1])


def pod(name: str, namespace: str = "default") -> str:
    return f"{PODS}{namespace}/{name}"


def write(versions: Versions, key: str, value: bytes | None) -> None:
    current = versions.get(key)
    if value is None and current is None:
        return
    expected = current.revision if current else None
    versions.apply(decide(current, key, value, expected, versions.revision + 1))


def names(page) -> list[str]:
    return [item.key.rpartition("/")[2] for item in page.items]


CONDITIONS = st.lists(
    st.builds(Condition, st.sampled_from([NODE, PHASE]), st.sampled_from(["", "n1", "n2", "Running"]), st.booleans()),
    min_size=1,
    max_size=4,
)
KEYS = st.sampled_from([pod(name, namespace) for name in "abc" for namespace in ("x", "y")] + ["/registry/secrets/x/a"])
VALUES = st.sampled_from([None, b"n1,Running", b"n2,Running", b",Pending", b"n1,"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), KEYS, VALUES),
        st.tuples(st.just("select"), CONDITIONS, st.sampled_from([PODS, f"{PODS}x/"])),
        st.tuples(st.just("compact"), st.just(None), st.just(None)),
    ),
    max_size=40,
)


@given(STEPS)
def test_an_index_finds_what_a_scan_finds(steps):
    async def play() -> None:
        versions = Versions()
        indexes = FieldIndexes(versions)
        for step, first, second in steps:
            if step == "write":
                write(versions, first, second)
            elif step == "compact":
                versions.compact(versions.revision)
            else:
                page = await indexes.select(PODS, first, second)
                scanned = [
                    item
                    for item in versions.page(second).items
                    if all(condition.accepts(condition.field.read(item)) for condition in first)
                ]
                assert list(page.items) == scanned
                assert page.revision == versions.revision

    asyncio.run(play())


def counted() -> tuple[Field, list[str]]:
    reads: list[str] = []

    def read(item: Item) -> str:
        reads.append(item.key)
        return NODE.read(item)

    return Field("counted node", read), reads


async def test_a_second_query_reads_only_what_has_changed_since():
    store = MemoryStore()
    for number in range(500):
        await store.create(pod(f"p{number}"), b"n%d,Running" % (number % 100))
    field, reads = counted()
    assert names(await store.select(PODS, [Condition(field, "n7")], scope=PODS)) == [
        "p107",
        "p207",
        "p307",
        "p407",
        "p7",
    ]
    assert len(reads) == 500
    reads.clear()
    await store.create(pod("new"), b"n7,Running")
    page = await store.select(PODS, [Condition(field, "n7")], scope=PODS)
    assert names(page) == ["new", "p107", "p207", "p307", "p407", "p7"]
    assert reads == [pod("new")]


async def test_an_index_that_has_fallen_behind_the_history_is_built_again():
    store = MemoryStore()
    first = await store.create(pod("a"), b"n1,Running")
    await store.select(PODS, [Condition(NODE, "n1")], scope=PODS)
    await store.delete(first.key, expected=first.revision)
    await store.create(pod("b"), b"n1,Running")
    await store.compact(store.revision)
    assert names(await store.select(PODS, [Condition(NODE, "n1")], scope=PODS)) == ["b"]


async def test_queries_beside_writes_see_every_write_that_came_before():
    store = MemoryStore()
    for number in range(2000):
        await store.create(pod(f"p{number}"), b"n1,Running")

    async def ask(number: int) -> None:
        await store.create(pod(f"mine{number}"), b"mine%d,Running" % number)
        page = await store.select(PODS, [Condition(NODE, f"mine{number}")], scope=PODS)
        assert names(page) == [f"mine{number}"]

    async def write_many() -> None:
        for number in range(AT_ONCE * 3):
            await store.create(pod(f"more{number}"), b"n2,Running")
            if not number % 50:
                await asyncio.sleep(0)

    await asyncio.gather(
        *(ask(number) for number in range(20)), write_many(), *(ask(number) for number in range(20, 40))
    )
    assert len((await store.select(PODS, [Condition(NODE, "n2")], scope=PODS)).items) == AT_ONCE * 3


async def test_more_conditions_than_are_indexed_hold_too():
    store = MemoryStore()
    await store.create(pod("a"), b"n1,Running,x,y,z")
    await store.create(pod("b"), b"n1,Running,x,y,other")

    def part(number: int) -> Field:
        return Field(f"part {number}", lambda item: item.value.decode().split(",")[number])

    conditions = [Condition(part(number), text) for number, text in enumerate(["n1", "Running", "x", "y", "z"])]
    assert names(await store.select(PODS, conditions, scope=PODS)) == ["a"]
