"""Labels of namespaces: levels, versions, and what happens to invalid ones."""

import pytest

from podwire.apiserver.admission.pod_security.configuration import parse
from podwire.apiserver.admission.pod_security.levels import Level, LevelVersion, Policy, policy_of

P = "pod-security.kubernetes.io/"


def policy(**labels):
    return policy_of({f"{P}{key.replace('_', '-')}": value for key, value in labels.items()}, Policy())


def test_without_labels_everything_is_privileged():
    chosen, errors = policy()
    assert chosen.privileged
    assert not errors


def test_labels_choose_level_and_version():
    chosen, errors = policy(enforce="baseline", enforce_version="v1.30", audit="restricted", warn="restricted")
    assert list(map(str, (chosen.enforce, chosen.audit, chosen.warn))) == [
        "baseline:v1.30",
        "restricted:latest",
        "restricted:latest",
    ]
    assert not errors


def test_enforcing_warns_about_the_same_unless_a_label_says_otherwise():
    assert str(policy(enforce="restricted", enforce_version="v1.25")[0].warn) == "restricted:v1.25"
    assert str(policy(enforce="restricted", warn="privileged")[0].warn) == "privileged:latest"
    assert str(policy(enforce="restricted", enforce_version="v1.25", warn_version="v1.2")[0].warn) == "restricted:v1.2"


@pytest.mark.parametrize("text", ["", "Baseline", "strict", "basel\u0131ne"])
def test_an_unknown_level_enforces_the_strictest_and_informs_of_nothing(text):
    chosen, errors = policy(enforce=text, audit=text, warn=text)
    assert chosen == Policy(LevelVersion(Level.RESTRICTED), LevelVersion(), LevelVersion())
    assert str(errors[0]) == (
        f'metadata.labels[{P}enforce]: Invalid value: "{text}": must be one of privileged, baseline, restricted'
    )
    assert len(errors) == 3


@pytest.mark.parametrize("text", ["v1", "1.30", "v1.030", "v2.1", "v1.x", "v1.\u0663", "v1." + "9" * 50])
def test_an_invalid_version_means_latest(text):
    chosen, errors = policy(enforce="baseline", enforce_version=text)
    assert str(chosen.enforce) == "baseline:latest"
    assert [error.detail for error in errors] == ['must be "latest" or "v1.x"']


def configuration(**parts):
    head = {"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration"}
    return parse({**head, **parts})


def test_a_configuration_has_defaults_and_exemptions():
    parsed = configuration(
        defaults={"enforce": "baseline", "enforce-version": "v1.30"},
        exemptions={"usernames": ["jane"], "namespaces": ["kube-system"], "runtimeClasses": ["sealed"]},
    )
    assert str(parsed.defaults.enforce) == "baseline:v1.30"
    assert (parsed.users, parsed.namespaces, parsed.runtime_classes) == ({"jane"}, {"kube-system"}, {"sealed"})
    assert configuration().defaults.privileged


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"defaults": {"enforce": "x"}}, 'defaults.enforce: Invalid value: "x": must be one of'),
        ({"defaults": {"warn-version": "1"}}, 'defaults.warn-version: Invalid value: "1": must be "latest" or "v1.x"'),
        ({"defaults": {"deny": "x"}}, 'defaults.deny: Invalid value: "x": unknown field'),
        ({"exemptions": {"usernames": [""]}}, 'exemptions.usernames[0]: Invalid value: "": username must not be empty'),
        ({"exemptions": {"namespaces": ["a", "a"]}}, 'exemptions.namespaces[1]: Duplicate value: "a"'),
        ({"exemptions": {"namespaces": ["A"]}}, 'exemptions.namespaces[0]: Invalid value: "A"'),
        ({"exemptions": []}, ""),
        ({"kind": "Other"}, "must be a PodSecurityConfiguration"),
    ],
)
def test_a_wrong_configuration_is_refused_with_the_field(parts, words):
    if not words:
        assert configuration(**parts).users == frozenset()
        return
    with pytest.raises(ValueError) as caught:
        configuration(**parts)
    assert words in str(caught.value)
