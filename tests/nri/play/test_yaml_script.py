"""Scripts of play."""

import pytest

from podwire.nri.play import read_script
from podwire.nri.play.node import merged_over
from podwire.nri.play.paths import NOTHING, BadPath, find, parse
from podwire.nri.script import BadScript


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("step: []", "script:1: step: is unknown; known are runtime, config, node, pods, register, steps"),
        ("steps: [{run: nobody}]", "steps.0..run: unknown pod 'nobody'; known are web"),
        ("steps: [{create: web/none}]", "pod web has no container 'none'; it has app"),
        ("steps: [{create: web}]", "create is for a container: POD/CONTAINER"),
        ("steps: [{run: web/app}]", "run is for a pod, not for a container"),
        ("steps: [{run: web, stop: web}]", "a step is one of run, .* and here are 2 of them"),
        ("steps: [{expect: {}}]", "here are 0 of them"),
        ("steps: [dance]", "'dance' must be one of restart-runtime, restart-plugin, disconnect"),
        ("steps: [{run: web, resources: {}}]", "only update and update-pod are about resources"),
        ("steps:\n- run: web\n  expect: {cals: []}", "script:3: steps.0..expect.cals: is unknown; known are calls"),
        ("steps: [{run: web, expect: {calls: [Run]}}]", "'Run' must be one of Configure"),
        ("steps: [{run: web, expect: {error: '('}}]", "is not a regular expression"),
        ("steps: [{run: web, expect: {adjust: {envs: {}}}}]", "ContainerAdjustment has no such field"),
        ("steps: [{run: web, expect: {spec: {'a..b': 1}}}]", "'a..b' is not a path"),
        ("steps: [{run: web, expect: {spec: {a: {contains: 1, equals: 2}}}}]", "one of contains"),
        ("steps: [{wait: long}]", "a time such as 300ms"),
        ("runtime: {generation: older}", "'older' must be one of old, new"),
        ("pods: {web: {label: {}}}", "PodSandbox has no such field"),
        ("pods: {web: {containers: {app: {spec: 1}}}}", "laid over config.json"),
    ],
)
def test_errors_name_the_key(text, says):
    with pytest.raises(BadScript, match=says):
        read_script(text)


def test_a_pod_without_fields_has_the_defaults():
    script = read_script("pods: {a: , b: {containers: {x: }}}")
    assert [step.title for step in script.steps] == [
        "run a",
        "stop a",
        "remove a",
        "run b",
        "create b/x",
        "start b/x",
        "stop b/x",
        "remove b/x",
        "stop b",
        "remove b",
    ]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a.b[0]", 1),
        ("a.b[-1]", 2),
        ('c["x.y/z"]', 3),
        ("a.b[2]", NOTHING),
        ("a.x", NOTHING),
        ("a.b.c", NOTHING),
        ("d-e", None),
    ],
)
def test_a_path_finds_a_value_or_nothing(path, found):
    assert find({"a": {"b": [1, 2]}, "c": {"x.y/z": 3}, "d-e": None}, path) is found


@pytest.mark.parametrize("path", [".a", "a..b", "a[", "a[x]", "a b"])
def test_invalid_paths_are_rejected(path):
    with pytest.raises(BadPath):
        parse(path)


def test_merging_replaces_lists_and_merges_mappings():
    below = {"a": {"b": 1, "c": [1]}, "d": 1}
    assert merged_over(below, {"a": {"c": [2]}, "e": {"f": 1}}) == {"a": {"b": 1, "c": [2]}, "d": 1, "e": {"f": 1}}
    assert below == {"a": {"b": 1, "c": [1]}, "d": 1}
