"""Plans the writes that bring a pool's ResourceSlices up to date. Pure.

Readers take the slices of the highest generation, and those only when they are as many as they say. So whatever changes
more than one slice is a new generation: until its last slice is written, nobody takes it, and the old one is not mixed
with it. One slice alone can change in place, and one that somebody deleted can be put back.

Names come from the place in the order: a second instance that publishes the same writes the same objects.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Object = dict[str, Any]
LONGEST_NAME = 253


class Pool(NamedTuple):
    """The driver and node of the slices."""

    driver: str
    node: str

    @property
    def name(self) -> str:
        return self.node


class Create(NamedTuple):
    name: str
    spec: Object


class Replace(NamedTuple):
    """Of a slice as it was seen; conditional on its being so still."""

    name: str
    spec: Object
    seen: Object


class Delete(NamedTuple):
    name: str
    seen: Object


Write = Create | Replace | Delete


def slice_name(pool: Pool, number: int) -> str:
    """A DNS subdomain, whatever the driver and the node are called."""
    name = f"{number:05x}-{pool.driver}-{pool.node}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(pool.node.encode()).hexdigest()[:10]
    return f"{name[: LONGEST_NAME - len(digest) - 1].rstrip('-.')}-{digest}"


def plan(
    pool: Pool,
    published: Sequence[Object],
    wanted: Sequence[Sequence[Object]],
    *,
    answers: Mapping[str, tuple[Object, Object]] | None = None,
    least: int = 0,
) -> list[Write]:
    """The writes, in order, that turn what is published into what is wanted; none when it is so already.

    published: all slices of the driver on the node. wanted: the devices of each slice.
    answers: by name, a spec as it was sent and as the server kept it: one that drops fields would be written for ever.
    least: a generation that was used before; a new one is higher.
    """
    ours = [slice_ for slice_ in published if _pool_of(slice_).get("name") == pool.name]
    strangers = [Delete(_name(slice_), slice_) for slice_ in published if _pool_of(slice_).get("name") != pool.name]
    names = [slice_name(pool, number) for number in range(len(wanted))]
    by_name = {_name(slice_): slice_ for slice_ in ours}
    generation = max([_generation(slice_) for slice_ in ours], default=least)
    specs = [_spec(pool, generation, len(wanted), devices) for devices in wanted]
    wrong = [at for at, name in enumerate(names) if not _says(by_name.get(name), specs[at], (answers or {}).get(name))]
    if not strangers and not wrong and by_name.keys() == set(names):
        return []
    if by_name.keys() <= set(names) and _in_place(by_name, wrong, names, len(wanted), generation):
        return strangers + [_write(names[at], specs[at], by_name.get(names[at])) for at in wrong]
    fresh = [_spec(pool, max(generation, least) + 1, len(wanted), devices) for devices in wanted]
    obsolete = [Delete(name, slice_) for name, slice_ in sorted(by_name.items()) if name not in names]
    return [*strangers, *(_write(*pair, by_name.get(pair[0])) for pair in zip(names, fresh, strict=True)), *obsolete]


def _in_place(by_name: Mapping[str, Object], wrong: Sequence[int], names: Sequence[str], count: int, now: int) -> bool:
    """Whether what is there is one generation, and what is wrong can be made right within it."""
    whole = all(
        _generation(slice_) == now and _pool_of(slice_).get("resourceSliceCount") == count
        for slice_ in by_name.values()
    )
    changed = [at for at in wrong if names[at] in by_name]
    missing = len(wrong) - len(changed)
    return bool(by_name) and whole and (not changed or (len(changed) == 1 and not missing))


def _write(name: str, spec: Object, seen: Object | None) -> Write:
    return Create(name, spec) if seen is None else Replace(name, spec, seen)


def _spec(pool: Pool, generation: int, count: int, devices: Sequence[Object]) -> Object:
    return {
        "driver": pool.driver,
        "pool": {"name": pool.name, "generation": generation, "resourceSliceCount": count},
        "nodeName": pool.node,
        "devices": list(devices),
    }


def _says(seen: Object | None, spec: Object, answer: tuple[Object, Object] | None) -> bool:
    """Whether a slice says what it should, as far as the server can keep it."""
    if seen is None:
        return False
    there = comparable(seen.get("spec") or {})
    return there == comparable(spec) or (
        answer is not None and comparable(answer[0]) == comparable(spec) and comparable(answer[1]) == there
    )


def comparable(spec: Mapping[str, Any]) -> Object:
    """Without the times of taints, which stay as they were first published."""
    return {**spec, "devices": [_timeless(device) for device in spec.get("devices") or ()]}


def _timeless(device: Mapping[str, Any]) -> Object:
    taints = [
        {key: value for key, value in taint.items() if key != "timeAdded"} for taint in device.get("taints") or ()
    ]
    return {**device, **({"taints": taints} if taints else {})}


def _name(slice_: Mapping[str, Any]) -> str:
    return str((slice_.get("metadata") or {}).get("name", ""))


def _pool_of(slice_: Mapping[str, Any]) -> Mapping[str, Any]:
    return (slice_.get("spec") or {}).get("pool") or {}


def _generation(slice_: Mapping[str, Any]) -> int:
    return int(_pool_of(slice_).get("generation") or 0)
