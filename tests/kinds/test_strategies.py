"""Every built-in kind has one strategy, and the answers that differ from the defaults are upstream's."""

import pytest

from podwire.kinds.builtin.apps import deployment
from podwire.kinds.builtin.core.pod import strategy as pod
from podwire.kinds.strategies import STRATEGIES, join_strategies, strategy_of
from podwire.kinds.strategy import CUSTOM, Strategy
from podwire.protocols.k8sapi.builtin import BUILTIN


def test_the_strategy_of_a_kind_is_found_in_its_module():
    assert STRATEGIES["apps", "Deployment"] is deployment.DEPLOYMENT
    assert STRATEGIES["", "Pod"] is pod.POD


def test_a_kind_without_rules_has_the_default_strategy():
    assert STRATEGIES["", "Binding"] == Strategy(group="", kind="Binding")


def test_a_strategy_of_a_kind_that_the_table_lacks_is_refused():
    with pytest.raises(LookupError, match="the table of kinds lacks Deploymnet of group 'apps'"):
        join_strategies(BUILTIN.all, [Strategy(group="apps", kind="Deploymnet")])


def test_a_second_strategy_of_a_kind_is_refused():
    again = Strategy(group="apps", kind="Deployment")
    with pytest.raises(LookupError, match="Deployment of group 'apps' has two strategies"):
        join_strategies(BUILTIN.all, [deployment.DEPLOYMENT, deployment.DEPLOYMENT, again])


def test_conversions_belong_to_versions_that_are_served():
    served = {(kind.group, kind.kind, kind.version) for kind in BUILTIN.all}
    converted = {(*key, version) for key, strategy in STRATEGIES.items() for version in strategy.conversions}
    assert converted <= served


@pytest.mark.parametrize("kind", BUILTIN.all, ids=lambda kind: f"{kind.api_version}/{kind.kind}")
def test_rules_for_subresources_belong_to_subresources_that_exist(kind):
    strategy = strategy_of(kind)
    served = {
        part.name
        for other in BUILTIN.all
        if (other.group, other.kind) == (kind.group, kind.kind)
        for part in other.subresources
    }
    assert strategy.validate_subresources.keys() <= served


def test_a_pod_gets_the_requested_grace_period_only_while_it_runs_on_a_node():
    grace = STRATEGIES["", "Pod"].grace_seconds
    running = {"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 7}, "status": {"phase": "Running"}}
    assert (grace(running, None), grace(running, 3)) == (7, 3)
    assert grace({"spec": {}}, 3) == 0
    assert grace({**running, "status": {"phase": "Failed"}}, None) == 0
    assert STRATEGIES["", "ConfigMap"].grace_seconds(running, 3) == 0


def test_a_namespace_keeps_its_finalizers_until_they_are_finalized():
    namespace = STRATEGIES["", "Namespace"]
    old, new = {"spec": {"finalizers": ["kubernetes"]}}, {"spec": {"finalizers": []}}
    namespace.prepare_update(new, old)
    assert new == old
    assert namespace.removal_blocked(old)
    assert not namespace.removal_blocked({"spec": {}})


def test_custom_resources_count_generations_and_are_never_overwritten_unseen():
    assert CUSTOM.counts_generation
    assert not CUSTOM.allow_unconditional_update
    assert not CUSTOM.allow_create_on_update
