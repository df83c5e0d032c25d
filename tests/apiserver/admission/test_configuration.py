"""The file of --admission-control-config-file."""

import pytest

from podwire.apiserver.admission.configuration import BadConfiguration, configured
from podwire.apiserver.admission.plugins import AdmissionSettings
from podwire.kinds.quota.decision import LimitedResource

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
POD_SECURITY = """
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults: {enforce: baseline}
exemptions: {namespaces: [kube-system]}
"""
QUOTA = """
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchContains: [gpu]
"""


def read(text, files=None):
    return configured((HEAD + text).encode(), lambda path: (files or {})[path].encode(), AdmissionSettings())


def test_a_plugin_is_configured_by_a_file_of_its_own():
    settings = read("plugins: [{name: PodSecurity, path: ps.yaml}]", {"ps.yaml": POD_SECURITY})

    assert str(settings.pod_security.defaults.enforce) == "baseline:latest"
    assert settings.pod_security.namespaces == {"kube-system"}


def test_a_plugin_is_configured_in_place():
    assert read(QUOTA).limited_resources == (LimitedResource(resource="pods", match_contains=("gpu",)),)


def test_a_file_without_plugins_changes_nothing():
    assert read("plugins: []") == read("") == AdmissionSettings()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plugins: [{name: Other}]", 'plugins[0].name: no admission plugin is named "Other"'),
        ("plugins: [{name: Priority}]", "plugins[0]: the plugin Priority has no configuration here"),
        ("plugins: [1]", 'plugins[0].name: no admission plugin is named "1"'),
        ("plugins: 1", "plugins: must be a list"),
        ("plugins: [{name: PodSecurity, configuration: {}}]", "plugins[0] (PodSecurity): must be a PodSecurityConf"),
        ("plugins: [{name: PodSecurity, configuration: 7}]", "plugins[0] (PodSecurity): "),
        (QUOTA.replace("resource: pods", "apiGroup: apps"), "limitedResources[0].resource: Required value"),
        ("plugins: [", "plugins"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text, words):
    with pytest.raises(BadConfiguration) as caught:
        read(text)
    assert words in str(caught.value) or words == "plugins"


def test_another_kind_of_file_is_refused():
    with pytest.raises(BadConfiguration, match="must be an AdmissionConfiguration of apiserver"):
        configured(b"kind: Pod", lambda _path: b"", AdmissionSettings())
    with pytest.raises(BadConfiguration, match="must be a mapping"):
        configured(b"- 1", lambda _path: b"", AdmissionSettings())
