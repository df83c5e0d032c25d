"""Whether a step came to what was expected. Pure: what was seen in, sentences out."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from podwire.nri.play.outcome import Outcome
from podwire.nri.play.paths import NOTHING, find
from podwire.nri.play.script import Expect, Wanted
from podwire.nri.script import to_plain
from podwire.protocols.nri.events import ALL, BY_TITLE, Event, Subscription


def judge(done: Outcome, ids: Mapping[str, str]) -> list[str]:
    """What is wrong; `ids` are those of the containers that a script names."""
    expect = done.step.expect
    return [
        *_error(expect, done),
        *_calls(expect, done),
        *_registered(expect, done),
        *_adjust(expect, done),
        *_updates(expect, done, ids),
        *_spec(expect, done),
        *_time(expect, done),
        *_connected(expect, done),
    ]


def _error(expect: Expect, done: Outcome) -> Iterator[str]:
    if expect.error is None:
        if done.error:
            yield f"fails: {done.error}"
    elif not done.error:
        yield f"error: /{expect.error.pattern}/ is expected, and nothing fails"
    elif not expect.error.search(done.error):
        yield f"error: /{expect.error.pattern}/ is expected, and it is {done.error!r}"


def _calls(expect: Expect, done: Outcome) -> Iterator[str]:
    if expect.calls is not None and done.calls != expect.calls:
        yield f"calls: {_list(expect.calls)} are expected, and these came: {_list(done.calls)}"
    if expect.asks is not None and done.asks != expect.asks:
        yield f"asks: {_list(expect.asks)} are expected, and the plugin asked: {_list(done.asks)}"
    if expect.synchronized is not None:
        told = done.synchronized()
        for key, number in expect.synchronized.items():
            if told[key] != number:
                yield f"synchronized.{key}: {number} are expected, and it was told of {told[key]}"


def _registered(expect: Expect, done: Outcome) -> Iterator[str]:
    plugin, mask = done.registered()
    if expect.plugin is not None and plugin != expect.plugin:
        yield f"plugin: {expect.plugin} is expected, and it is {plugin or 'nobody'}"
    if expect.subscribes is not None:
        wanted = Subscription.of(*(BY_TITLE[each] for each in expect.subscribes))
        found = Subscription(mask) if mask else ALL
        if mask is None or found != wanted:
            titles = [each.title for each in Event if mask is not None and each in found]
            yield f"subscribes: {_list(expect.subscribes)} are expected, and it wants {_list(titles)}"


def _adjust(expect: Expect, done: Outcome) -> Iterator[str]:
    if expect.adjust is None:
        return
    found = {} if done.adjust is None else to_plain(done.adjust)
    if not expect.adjust:
        if found:
            yield f"adjust: nothing is expected, and it is {_json(found)}"
        return
    yield from missing(expect.adjust, found, "adjust")


def _updates(expect: Expect, done: Outcome, ids: Mapping[str, str]) -> Iterator[str]:
    if expect.updates is None:
        return
    found = [to_plain(each) for each in done.updates]
    named = [
        {**each, "container_id": ids.get(each.get("container_id", ""), each.get("container_id"))}
        for each in expect.updates
    ]
    if len(found) != len(named):
        yield f"updates: {len(named)} are expected, and these came: {_json(found)}"
        return
    for number, (wanted, came) in enumerate(zip(named, found, strict=True)):
        yield from missing(wanted, came, f"updates[{number}]")


def missing(wanted: Any, found: Any, path: str) -> Iterator[str]:
    """What of `wanted` is not in `found`: keys may be more than asked for, entries of a list in any order."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key, value in wanted.items():
            if key not in found:
                yield f"{path}.{key}: {_json(value)} is expected, and it is not there"
            else:
                yield from missing(value, found[key], f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list):
        for value in wanted:
            if not any(not list(missing(value, each, "")) for each in found):
                yield f"{path}: {_json(value)} is expected, and there is {_json(found)}"
    elif wanted != found:
        yield f"{path}: {_json(wanted)} is expected, and it is {_json(found)}"


def _spec(expect: Expect, done: Outcome) -> Iterator[str]:
    if expect.spec and not done.written:
        yield "spec: this step writes no config.json"
        return
    for each in expect.spec:
        yield from value(each, done.written[-1].after)


def value(wanted: Wanted, spec: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with one value of a config.json."""
    found = find(spec, wanted.path)
    shown = "it is not there" if found is NOTHING else f"it is {_json(found)}"
    if wanted.absent:
        if found is not NOTHING:
            yield f"spec {wanted.path}: nothing is expected, and {shown}"
    elif wanted.matches is not None:
        if not wanted.matches.search(found if isinstance(found, str) else _json(found)):
            yield f"spec {wanted.path}: /{wanted.matches.pattern}/ is expected, and {shown}"
    elif wanted.contains is not None:
        whole = isinstance(found, str) and isinstance(wanted.contains, str) and wanted.contains in found
        part = [wanted.contains] if isinstance(found, list) else wanted.contains
        if not whole and (found is NOTHING or list(missing(part, found, ""))):
            yield f"spec {wanted.path}: {_json(wanted.contains)} is expected in it, and {shown}"
    elif found is NOTHING or found != wanted.equals:
        yield f"spec {wanted.path}: {_json(wanted.equals)} is expected, and {shown}"


def _time(expect: Expect, done: Outcome) -> Iterator[str]:
    for each in done.exchanges:
        if expect.within is not None and each.asked_by == "runtime" and each.took > expect.within:
            yield f"within: {each.method} took {each.took * 1e3:.1f} ms, and {expect.within * 1e3:g} ms are expected"


def _connected(expect: Expect, done: Outcome) -> Iterator[str]:
    if expect.connected and not done.connected:
        yield f"the plugin is gone: {done.why_gone or 'nobody knows why'}"
    elif not expect.connected and done.connected:
        yield "connected: the plugin shall be gone, and is there"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _json(found: Any) -> str:
    return "nothing" if found is NOTHING else json.dumps(found, sort_keys=True)
