"""The mask follows from what is defined."""

import pytest

from podwire.nri import Plugin
from podwire.nri.plugin import METHODS, subscription
from podwire.protocols.nri.events import ALL_EVENTS, Event


async def hook(self, *_):
    return None


def plugin_with(*events, base=Plugin):
    return type("Some", (base,), {METHODS[event]: hook for event in events})()


CLEANING = (Event.STOP_POD_SANDBOX, Event.REMOVE_POD_SANDBOX)


@pytest.mark.parametrize("event", [item for item in Event if item not in CLEANING], ids=lambda each: each.title)
def test_a_hook_that_is_defined_is_subscribed_to_and_no_other(event):
    assert subscription(plugin_with(event)).mask == event.bit


@pytest.mark.parametrize("event", CLEANING, ids=lambda each: each.title)
def test_plugins_that_clean_up_subscribe_to_run_pod_sandbox(event):
    assert subscription(plugin_with(event)).mask == event.bit | Event.RUN_POD_SANDBOX.bit


def test_a_plugin_with_all_hooks_gets_all_events():
    assert subscription(plugin_with(*Event)).mask == ALL_EVENTS


def test_a_plugin_without_hooks_subscribes_to_nothing():
    assert subscription(Plugin()).mask == 0


def test_hooks_of_a_base_class_count():
    base = type(plugin_with(Event.CREATE_CONTAINER))
    both = Event.CREATE_CONTAINER.bit | Event.START_CONTAINER.bit
    assert subscription(plugin_with(Event.START_CONTAINER, base=base)).mask == both


def test_every_event_has_a_method_of_the_plugin():
    assert set(METHODS) == set(Event)
    assert all(callable(getattr(Plugin, method)) for method in METHODS.values())
