"""docs/nri-plugin.md tells what is there."""

import asyncio
import inspect
import re
from pathlib import Path

import pytest

from podwire.nri import Adjustment, Plugin, pb
from podwire.nri.plugin import METHODS, subscription
from podwire.protocols.nri.events import Event, Subscription

PAGE = (Path(__file__).parents[3] / "docs" / "nri-plugin.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def marker():
    """The plugin of the page."""
    [source] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {"__name__": "page"}
    exec(compile(source, "nri-plugin.md", "exec"), names)
    return names["Marker"]()


def test_the_plugin_of_the_page_subscribes_to_its_two_hooks(marker):
    assert subscription(marker) == Subscription.of(Event.RUN_POD_SANDBOX, Event.CREATE_CONTAINER)


def test_the_documented_plugin_works_as_documented(marker):
    with pytest.raises(ValueError, match="web has no address"):
        asyncio.run(marker.run_pod_sandbox(pb.PodSandbox(name="web")))
    adjusted = asyncio.run(marker.create_container(pb.PodSandbox(), pb.Container())).message
    assert [(item.key, item.value) for item in adjusted.env] == [("SEEN_BY", "marker")]
    assert [(mount.destination, mount.source, list(mount.options)) for mount in adjusted.mounts] == [
        ("/data", "/srv/data", ["rbind", "ro"])
    ]


def test_every_hook_has_a_row_with_its_arguments():
    result = dict(re.findall(r"^\| `(\w+)\(([^)]*)\)`", PAGE, re.MULTILINE))
    assert set(result) == {*METHODS.values(), "configure", "synchronize", "pod_vanished", "shutdown"}
    for name, arguments in result.items():
        assert re.findall(r"\w+", arguments) == list(inspect.signature(getattr(Plugin, name)).parameters)[1:]


def test_every_call_of_an_adjustment_is_named():
    result = set(re.findall(r"`((?:add|remove|set)_\w+)`", PAGE)) - set(METHODS.values())
    assert result == {var for var in vars(Adjustment) if not var.startswith("_")}
