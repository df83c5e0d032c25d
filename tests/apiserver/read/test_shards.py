"""shardSelector: parts of a collection by a hash of uid or namespace."""

import pytest

from podwire.apiserver.read.shards import hash_of
from tests.apiserver.support import CONFIGS

ALL = "/api/v1/configmaps"
LOW, MIDDLE, END = "0x0000000000000000", "0x8000000000000000", "0x10000000000000000"


def shard(start: str, end: str, path: str = "object.metadata.uid") -> str:
    return f"shardRange({path}, '{start}', '{end}')"


def quoted(selector: str) -> str:
    return f"shardSelector={selector.replace(' ', '%20').replace('|', '%7C')}"


@pytest.mark.parametrize(("text", "number"), [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C)])
def test_the_hash_is_fnv_1a(text, number):
    assert hash_of(text) == number


async def test_shards_are_the_whole_collection_together(api, config):
    for number in range(20):
        await api.made(CONFIGS, config(f"c{number}", labels={"app": "x"}))
    whole = {item["metadata"]["name"]: item["metadata"]["uid"] for item in (await api.get(CONFIGS)).body["items"]}
    low, high = shard(LOW, MIDDLE), shard(MIDDLE, END)

    first, second = [(await api.get(f"{CONFIGS}?{quoted(part)}")).body for part in (low, high)]

    names = [{item["metadata"]["name"] for item in listed["items"]} for listed in (first, second)]
    assert names[0] == {name for name, uid in whole.items() if hash_of(uid) < 1 << 63}
    assert all(names)
    assert names[0] | names[1] == set(whole)
    assert not names[0] & names[1]
    assert first["metadata"]["shardInfo"] == {"selector": low}
    both = await api.get(f"{CONFIGS}?{quoted(f'{low}||{high}')}&labelSelector=app&limit=50")
    assert (set(both.names), both.body["metadata"]["shardInfo"]) == (
        {name for name in whole if name != "kube-root-ca.crt"},
        {"selector": f"{low} || {high}"},
    )


async def test_a_watch_of_a_shard_sees_its_objects_only(api, config):
    path = "object.metadata.namespace"
    inside = shard(LOW, MIDDLE, path) if hash_of("default") < 1 << 63 else shard(MIDDLE, END, path)
    outside = shard(MIDDLE, END, path) if hash_of("default") < 1 << 63 else shard(LOW, MIDDLE, path)
    options = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&allowWatchBookmarks=true&labelSelector=app"
    await api.made(CONFIGS, config("before", labels={"app": "x"}))
    sees = await api.watch(f"{ALL}?{quoted(inside)}&{options}")
    blind = await api.watch(f"{ALL}?{quoted(outside)}&{options}")

    await api.made(CONFIGS, config("after", labels={"app": "x"}))

    frames = await sees.take(3)
    assert [frame["type"] for frame in frames] == ["ADDED", "BOOKMARK", "ADDED"]
    assert (await blind.next())["type"] == "BOOKMARK"
    assert await blind.is_quiet()


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("true", "expected shardRange() calls"),
        ("hash(object.metadata.uid)", 'unsupported function "hash"'),
        ("shardRange(object.metadata.uid, '0x0')", "requires exactly 3 arguments, got 2"),
        (shard(LOW, END, "object.metadata.name"), 'unsupported field path "object.metadata.name"'),
        (shard(LOW, END, "1"), "expected field path"),
        (shard("0", END), "hexStart must have '0x' prefix"),
        (shard("0xff", END), 'did you mean "0x00000000000000ff"'),
        (shard(LOW, "0x1000000000000000f"), "hexEnd must be"),
        (shard("0xG000000000000000", END), "hexStart must be"),
        (shard(MIDDLE, LOW), "must be less than end"),
        ("shardRange(object.metadata.uid, 0, 1)", "must be a string literal"),
        (f"{shard(LOW, MIDDLE)} {shard(MIDDLE, END)}", "combined by ||"),
        (f"{shard(LOW, MIDDLE)}||{shard(LOW, END, 'object.metadata.namespace')}", "must use the same field"),
        ("x" * 70_000, "longer than"),
    ],
)
async def test_invalid_selectors_are_refused(api, selector, why):
    reply = await api.get(f"{CONFIGS}?{quoted(selector)}")

    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
    assert why in reply.message
