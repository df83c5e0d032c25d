"""KubeSchedulerConfiguration: which plugins a profile has, what is ignored aloud, and what is refused."""

import pytest
import yaml

from podwire.protocols.settings import BadConfig
from podwire.scheduler import Chosen, Profile, Unschedulable, choose, configuration
from podwire.scheduler.filters import FILTERS
from podwire.scheduler.scores import SCORES

FILTER_NAMES = [filter_.name for filter_ in FILTERS]
SCORE_WEIGHTS = {score.name: score.weight for score in SCORES}


def read(*profiles, **settings):
    given = {"apiVersion": configuration.API_VERSION, "kind": configuration.KIND, **settings}
    if profiles:
        given["profiles"] = list(profiles)
    return configuration.read(yaml.safe_dump(given).encode(), "scheduler.yaml")


def names(*given):
    return [{"name": name} for name in given]


def profile(**plugins):
    [made] = read({"plugins": plugins}).profiles
    return made


def test_without_profiles_there_is_the_default_one():
    assert read() == configuration.Configuration(profiles=(Profile(),), limits=read().limits)
    assert read({"schedulerName": "default-scheduler"}).profiles == (Profile(),)


def test_each_profile_has_its_own_plugins():
    config = read({"schedulerName": "one"}, {"schedulerName": "two", "plugins": {"score": {"disabled": names("*")}}})
    assert [(made.name, len(made.scores)) for made in config.profiles] == [("one", len(SCORES)), ("two", 0)]


@pytest.mark.parametrize(
    ("plugins", "filters"),
    [
        pytest.param({"filter": {"disabled": names("NodePorts")}}, set(FILTER_NAMES) - {"NodePorts"}, id="one less"),
        pytest.param({"filter": {"disabled": names("*")}}, set(), id="none"),
        pytest.param(
            {"filter": {"disabled": names("*"), "enabled": names("NodeName", "NodePorts")}},
            {"NodeName", "NodePorts"},
            id="only these",
        ),
        pytest.param({"score": {"disabled": names("*")}}, set(FILTER_NAMES), id="another point"),
        pytest.param(
            {"multiPoint": {"disabled": names("TaintToleration")}},
            set(FILTER_NAMES) - {"TaintToleration"},
            id="at all points",
        ),
        pytest.param(
            {"multiPoint": {"disabled": names("*")}, "filter": {"enabled": names("NodeName")}},
            {"NodeName"},
            id="none but one",
        ),
        pytest.param(
            {"multiPoint": {"disabled": names("*"), "enabled": names("NodeName")}},
            {"NodeName"},
            id="none but one again",
        ),
    ],
)
def test_filters_are_disabled_and_enabled(plugins, filters):
    made = profile(**plugins)
    assert {filter_.name for filter_ in made.filters} == filters
    assert [filter_.name for filter_ in made.filters] == [name for name in FILTER_NAMES if name in filters]


def test_scores_get_other_weights():
    enabled = [{"name": "ImageLocality", "weight": 7}]
    for plugins in ({"score": {"enabled": enabled}}, {"multiPoint": {"enabled": enabled}}):
        made = {score.name: score.weight for score in profile(**plugins).scores}
        assert made == {**SCORE_WEIGHTS, "ImageLocality": 7}


def test_disabled_preemption_is_not_mentioned(make_pod, make_snapshot):
    for point in ("postFilter", "multiPoint"):
        made = profile(**{point: {"disabled": names("DefaultPreemption")}})
        snapshot = make_snapshot({"a": {"allocatable": {"cpu": "1"}}}, [("a", "low", {"requests": {"cpu": "1"}})])
        result = choose(make_pod(priority=5, requests={"cpu": "1"}), snapshot, made)
        assert isinstance(result, Unschedulable)
        assert (result.message, result.preemption) == ("0/1 nodes are available: 1 Insufficient cpu.", None)


def test_a_disabled_filter_does_not_filter(make_pod, make_snapshot):
    snapshot = make_snapshot({"a": {"unschedulable": True}})
    assert isinstance(choose(make_pod(), snapshot), Unschedulable)
    assert choose(make_pod(), snapshot, profile(filter={"disabled": names("NodeUnschedulable")})) == Chosen("a")


@pytest.mark.parametrize(("strategy", "node"), [("LeastAllocated", "b"), ("MostAllocated", "a")])
def test_nodes_are_spread_or_packed_by_the_scoring_strategy(make_pod, make_snapshot, strategy, node):
    resources = [{"name": "example.com/gpu", "weight": 5}, {"name": "cpu"}]
    args = {"scoringStrategy": {"type": strategy, "resources": resources}}
    [made] = read({"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}).profiles
    gpus = {"allocatable": {"example.com/gpu": "4"}}
    snapshot = make_snapshot({"a": gpus, "b": gpus}, [("a", "x", {"requests": {"example.com/gpu": "1"}})])
    assert choose(make_pod(requests={"example.com/gpu": "1"}), snapshot, made) == Chosen(node)


def test_times_of_the_back_off_are_taken_over():
    limits = read(podInitialBackoffSeconds=2, podMaxBackoffSeconds=5).limits
    assert (limits.initial_backoff, limits.max_backoff) == (2.0, 5.0)


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"parallelism": 16}, "parallelism has no effect in this scheduler"),
        ({"leaderElection": {"leaderElect": True}}, "leaderElection has no effect in this scheduler"),
        (
            {"profiles": [{"plugins": {"bind": {"disabled": names("*")}}}]},
            "profiles[0].plugins.bind has no effect in this scheduler",
        ),
        (
            {"profiles": [{"plugins": {"filter": {"enabled": names("GangScheduling")}}}]},
            "profiles[0].plugins.filter.enabled[0].name: plugin GangScheduling is not supported by this scheduler",
        ),
        (
            {"profiles": [{"plugins": {"filter": {"disabled": names("SchedulingGates")}}}]},
            "profiles[0].plugins.filter.disabled[0].name: plugin SchedulingGates is always enabled in this scheduler",
        ),
    ],
)
def test_settings_without_effect_are_named(settings, warning):
    assert read(**settings).warnings == (warning,)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"apiVersion": "v1"}, "apiVersion: 'v1' must be one of kubescheduler.config.k8s.io/v1"),
        ({"kind": "Pod"}, "kind: 'Pod' must be one of KubeSchedulerConfiguration"),
        ({"profile": []}, "profile: is not a setting; known settings: "),
        ({"profiles": []}, "profiles: must be a list with at least one item"),
        ({"profiles": [{}, {}]}, 'profiles[1].schedulerName: duplicate value: "default-scheduler"'),
        ({"profiles": [{"schedulerName": "A b"}]}, "profiles[0].schedulerName: 'A b' is not a scheduler name"),
        (
            {"profiles": [{"plugins": {"filter": {"enabled": names("Nope")}}}]},
            'profiles[0].plugins.filter.enabled[0].name: plugin "Nope" does not exist',
        ),
        (
            {"profiles": [{"plugins": {"filter": {"disabled": names("Nope")}}}]},
            'profiles[0].plugins.filter.disabled[0].name: plugin "Nope" does not exist',
        ),
        (
            {"profiles": [{"plugins": {"score": {"enabled": names("NodePorts")}}}]},
            'profiles[0].plugins.score.enabled[0].name: plugin "NodePorts" does not extend this extension point',
        ),
        (
            {"profiles": [{"plugins": {"filter": {"enabled": names("NodePorts", "NodePorts")}}}]},
            'profiles[0].plugins.filter.enabled: plugin "NodePorts" is already registered',
        ),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "NodeAffinity", "weight": -1}]}}}]},
            "profiles[0].plugins.score.enabled[0].weight: -1 must be a number from 0 to ",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 5}}]}]},
            "profiles[0].pluginConfig[0].args: arguments of InterPodAffinity are not supported",
        ),
        (
            {
                "profiles": [
                    {
                        "pluginConfig": [
                            {
                                "name": "NodeResourcesFit",
                                "args": {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
                            }
                        ]
                    }
                ]
            },
            "profiles[0].pluginConfig[0].args.scoringStrategy.type: 'RequestedToCapacityRatio' must be one of ",
        ),
        ({"extenders": [{"urlPrefix": "http://x"}]}, "extenders: extenders are not supported"),
        (
            {"podInitialBackoffSeconds": 9, "podMaxBackoffSeconds": 3},
            "podMaxBackoffSeconds: must be greater than or equal to podInitialBackoffSeconds",
        ),
    ],
)
def test_bad_settings_are_refused_by_name(settings, error):
    with pytest.raises(BadConfig) as caught:
        read(**settings)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize("text", ["", "[]", "a: [", "\x00", "profiles: {}\nprofiles: {}"])
def test_other_files_are_refused(text):
    with pytest.raises(BadConfig):
        configuration.read(text.encode(), "scheduler.yaml")
