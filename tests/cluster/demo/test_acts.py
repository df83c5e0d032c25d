"""The acts of the demo as data, and how they are compared."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from podwire.cluster.demo.acts import acts
from podwire.cluster.demo.acts.act import WAITS, DemoContext
from podwire.cluster.demo.comparison import ALWAYS, comparison, written
from podwire.cluster.demo.manifests import CLUSTER, PULLED, WITH_REGISTRY
from podwire.cluster.up.layout import Layout
from podwire.trace.flow import FLOWS

PLACE = DemoContext(layout=Layout(Path("/tmp/x")), minor=WAITS)
ACTS = acts(PLACE)


def test_there_is_an_act_for_every_flow():
    assert sorted(act.flow for act in ACTS) == sorted(FLOWS)
    assert [act.number for act in ACTS] == list(range(1, len(FLOWS) + 1))


@pytest.mark.parametrize("act", ACTS, ids=lambda each: each.title)
def test_an_act_starts_its_pod_checks_its_flow_and_cleans_up(act):
    commands = [step.command for step in act.steps]
    files = [command.removeprefix("kubectl apply -f ") for command in commands if command.startswith("kubectl apply")]
    objects = [object_ for file in files if file in CLUSTER for object_ in yaml.safe_load_all(CLUSTER[file])]
    pods = {object_["metadata"]["name"] for object_ in objects if object_["kind"] == "Pod"}
    assert act.pod in pods
    assert any(command.endswith(f"--check {act.flow}") for command in commands)
    [delete] = [command for command in commands if command.startswith("kubectl delete pod ")]
    assert set(delete.split()[3:]) == pods


def test_with_a_registry_the_first_pod_is_pulled_from_it():
    [first, *others] = acts(replace(PLACE, registry=True))
    assert [step.name for step in first.steps[:3]] == ["build", "registry", "push"]
    assert [step.name for step in first.steps[3:]] == [step.name for step in ACTS[0].steps]
    [container] = yaml.safe_load(WITH_REGISTRY["web.yaml"])["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == (PULLED, "IfNotPresent")
    assert others == ACTS[1:]


def test_an_old_kubectl_is_asked_for_nothing_that_it_cannot():
    old = acts(DemoContext(layout=PLACE.layout, minor=20))
    assert not [step for act in old for step in act.steps if "--for=jsonpath" in step.command]


def test_pages_go_into_files_one_for_each_act():
    drawn = acts(DemoContext(layout=PLACE.layout, minor=WAITS, form="html"))
    assert [step.saves for item in drawn for step in item.steps if step.saves] == [f"{act.flow}.html" for act in ACTS]
    assert not [step for act in ACTS for step in act.steps if step.saves]


def test_acts_are_compared_by_their_recordings(tmp_path):
    data = Path(__file__).parents[2] / "trace/data"
    for number, flow in enumerate(("pod", "network-driver"), 1):
        (tmp_path / f"{number:08}.jsonl").write_bytes((data / f"{flow}.jsonl").read_bytes())
    lines = comparison(ACTS, tmp_path, 140)
    assert max(map(len, lines)) <= 140
    times = next(line for line in lines if line.startswith("POST to Running"))
    assert times.count(" ms") == 2  # of the others nothing was recorded
    claims = next(line for line in lines if line.strip().startswith("claims"))
    assert claims.count(" ms") == 1
    always = lines.index(ALWAYS)
    assert next(number for number, line in enumerate(lines) if line.startswith("objects applied")) < always
    assert any(line.startswith("scheduler knows") for line in lines[always:])


def test_the_comparison_lists_the_objects_that_an_act_applied():
    assert {act.flow: written(act) for act in ACTS} == {
        "pod": ["Pod"],
        "cni": ["Pod"],
        "nri": ["PodRoute", "NetworkPolicy", "Pod"],
        "device-plugin": ["pools.yaml", "Pod"],
        "network-driver": ["DeviceClass", "ResourceClaim", "Pod"],
    }
