"""Compares the outcome of a step with its expectations. Pure: returns one sentence per difference."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from podwire.nri.play.outcome import Outcome
from podwire.nri.play.paths import NOTHING, find
from podwire.nri.play.script import Expect, Wanted
from podwire.nri.script import to_plain
from podwire.protocols.nri.events import ALL, BY_TITLE, Event, Subscription

DISCONNECTED = "the plugin is disconnected"
"""The prefix of the failure that reports a lost plugin."""


def check_step(done: Outcome, ids: Mapping[str, str]) -> list[str]:
    """The differences; `ids` are those of the containers that a script names."""
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
        yield f"error: /{expect.error.pattern}/ is expected, but nothing failed"
    elif not expect.error.search(done.error):
        yield f"error: /{expect.error.pattern}/ is expected, got {done.error!r}"


def _calls(expect: Expect, done: Outcome) -> Iterator[str]:
    if expect.calls is not None and done.calls != expect.calls:
        yield f"calls: {_list(expect.calls)} are expected, got {_list(done.calls)}"
    if expect.asks is not None and done.asks != expect.asks:
        yield f"asks: {_list(expect.asks)} are expected, got {_list(done.asks)}"
    if expect.synchronized is not None:
        counts = done.synchronized()
        for key, number in expect.synchronized.items():
            if counts[key] != number:
                yield f"synchronized.{key}: {number} are expected, got {counts[key]}"


def _registered(expect: Expect, done: Outcome) -> Iterator[str]:
    plugin, mask = done.registered()
    if expect.plugin is not None and plugin != expect.plugin:
        yield f"plugin: {expect.plugin} is expected, got {plugin or 'no registration'}"
    if expect.subscribes is not None:
        wanted = Subscription.of(*(BY_TITLE[title] for title in expect.subscribes))
        subscription = Subscription(mask) if mask else ALL
        if mask is None or subscription != wanted:
            titles = [event.title for event in Event if mask is not None and event in subscription]
            yield f"subscribes: {_list(expect.subscribes)} are expected, got {_list(titles)}"


def _adjust(expect: Expect, done: Outcome) -> Iterator[str]:
    if expect.adjust is None:
        return
    adjustment = {} if done.adjust is None else to_plain(done.adjust)
    if not expect.adjust:
        if adjustment:
            yield f"adjust: nothing is expected, got {_json(adjustment)}"
        return
    yield from missing(expect.adjust, adjustment, "adjust")


def _updates(expect: Expect, done: Outcome, ids: Mapping[str, str]) -> Iterator[str]:
    if expect.updates is None:
        return
    updates = [to_plain(update) for update in done.updates]
    named = [
        {**update, "container_id": ids.get(update.get("container_id", ""), update.get("container_id"))}
        for update in expect.updates
    ]
    if len(updates) != len(named):
        yield f"updates: {len(named)} are expected, got {_json(updates)}"
        return
    for number, (wanted, came) in enumerate(zip(named, updates, strict=True)):
        yield from missing(wanted, came, f"updates[{number}]")


def missing(expected: Any, actual: Any, path: str) -> Iterator[str]:
    """The parts of `expected` that are not in `actual`, which may have more keys; lists are compared in any order."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key, value in expected.items():
            if key not in actual:
                yield f"{path}.{key}: {_json(value)} is expected, but is missing"
            else:
                yield from missing(value, actual[key], f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(actual, list):
        for value in expected:
            if not any(not list(missing(value, item, "")) for item in actual):
                yield f"{path}: {_json(value)} is expected, got {_json(actual)}"
    elif expected != actual:
        yield f"{path}: {_json(expected)} is expected, got {_json(actual)}"


def _spec(expect: Expect, done: Outcome) -> Iterator[str]:
    if expect.spec and not done.written:
        yield "spec: this step writes no config.json"
        return
    for spec_check in expect.spec:
        yield from value(spec_check, done.written[-1].after)


def value(expected: Wanted, spec: Mapping[str, Any]) -> Iterator[str]:
    """The differences of one value of a config.json."""
    actual = find(spec, expected.path)
    shown = "it is missing" if actual is NOTHING else f"got {_json(actual)}"
    if expected.absent:
        if actual is not NOTHING:
            yield f"spec {expected.path}: nothing is expected, {shown}"
    elif expected.matches is not None:
        if not expected.matches.search(actual if isinstance(actual, str) else _json(actual)):
            yield f"spec {expected.path}: /{expected.matches.pattern}/ is expected, {shown}"
    elif expected.contains is not None:
        whole = isinstance(actual, str) and isinstance(expected.contains, str) and expected.contains in actual
        part = [expected.contains] if isinstance(actual, list) else expected.contains
        if not whole and (actual is NOTHING or list(missing(part, actual, ""))):
            yield f"spec {expected.path}: {_json(expected.contains)} is expected in it, {shown}"
    elif actual is NOTHING or actual != expected.equals:
        yield f"spec {expected.path}: {_json(expected.equals)} is expected, {shown}"


def _time(expect: Expect, done: Outcome) -> Iterator[str]:
    for exchange in done.exchanges:
        if expect.within is not None and exchange.asked_by == "runtime" and exchange.took > expect.within:
            took = f"{exchange.method} took {exchange.took * 1e3:.1f} ms"
            yield f"within: {took}, but {expect.within * 1e3:g} ms are expected"


def _connected(expect: Expect, done: Outcome) -> Iterator[str]:
    if expect.connected and not done.connected:
        yield f"{DISCONNECTED}: {done.why_gone or 'unknown cause'}"
    elif not expect.connected and done.connected:
        yield "connected: the plugin is still connected"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _json(value: Any) -> str:
    return "nothing" if value is NOTHING else json.dumps(value, sort_keys=True)
