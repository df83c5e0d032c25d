"""SIGKILL before every step on the disk: readers find the old state or the new one, and the store goes on working."""

import itertools
import json
from pathlib import Path

import pytest

from podwire.durable.files import Durability
from podwire.durable.layout import Layout
from podwire.durable.records import Codec, Records
from tests.durable.conftest import in_child

JSON = Codec(lambda value: json.dumps(value).encode(), json.loads)
LAYOUTS = {"file": (Layout(), "a"), "nested": (Layout(depth=2), "pod/a"), "directory": (Layout(file="r.json"), "a")}
KEPT = "other"
"""Another record, which no crash may touch."""


def migrate(format_: int, data: bytes):
    if format_ != 1:
        raise ValueError("is not a record")
    return json.loads(data)


ACTIONS = {
    # name: (before, action, allowed after a crash, after completion)
    "create": (None, lambda store, key, how: store.put(key, "new", how), {None, "new"}, "new"),
    "replace": ("old", lambda store, key, how: store.put(key, "new", how), {"old", "new"}, "new"),
    "remove": ("old", lambda store, key, how: store.remove(key, how), {"old", None}, None),
    "migrate": (1, lambda store, key, how: store.put(key, "new", how), {1, "new"}, "new"),
    "quarantine": (b"junk", lambda store, key, _how: store.get(key), {None}, None),
}


@pytest.mark.parametrize("durability", [Durability.POWER_LOSS, Durability.PROCESS_DEATH], ids=lambda each: each.name)
@pytest.mark.parametrize("append", [False, True], ids=["file", "log"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_kill_before_any_step_leaves_the_old_state_or_the_new(tmp_path, action, layout, append, durability):
    before, act, allowed, after = ACTIONS[action]
    shape, key = LAYOUTS[layout]
    other = f"pod/{KEPT}" if shape.depth == 2 else KEPT
    for step in itertools.count(1):
        directory = tmp_path / str(step)

        def opened(format_=2, directory=directory):
            options = {"layout": shape, "append": append, "migrate": migrate, "report": lambda _: None}
            return Records(directory, JSON, format=format_, **options)

        opened().put(other, "kept")
        if before is not None:
            opened(1 if before == 1 else 2).put(key, 1 if before == b"junk" else before)
        if before == b"junk":
            Path(opened().path(key)).write_bytes(before)
        ended, result = in_child(lambda opened=opened: act(opened(), key, durability), kill_before=step)
        assert not isinstance(result, BaseException), result
        value = opened().get(key)
        assert value in ({after} if ended else allowed)
        assert opened().load().get(other) == "kept"
        opened().sweep()
        assert list(directory.rglob(".*")) == []
        if before == b"junk":
            [quarantined] = opened().quarantined()[key]
            assert Path(quarantined).read_bytes() == before
        opened().put(key, "next")
        assert opened().load() == {key: "next", other: "kept"}
        opened().remove(key)
        assert opened().get(key) is None
        if ended:
            assert step > 1
            break
