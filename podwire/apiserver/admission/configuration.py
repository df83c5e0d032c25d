"""Reads the file of `--admission-control-config-file`: an AdmissionConfiguration with a part for each plugin.

Pure but for the files that it names, which are read by the function that is handed in.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from podwire.apiserver.admission.plugins import PLUGINS, AdmissionSettings
from podwire.apiserver.admission.pod_security import configuration as pod_security
from podwire.kinds.quota.decision import LimitedResource
from podwire.protocols.k8sapi import yamls
from podwire.protocols.k8sapi.codec import BadBody

VERSIONS = tuple(f"apiserver.config.k8s.io/{version}" for version in ("v1", "v1alpha1"))
QUOTA_VERSIONS = (*VERSIONS, "resourcequota.admission.k8s.io/v1beta1", "resourcequota.admission.k8s.io/v1alpha1")


class BadConfiguration(ValueError):
    """A configuration that cannot be used; says which part and why."""


def configured(data: bytes, read: Callable[[str], bytes], settings: AdmissionSettings) -> AdmissionSettings:
    """Returns the settings with what a file configures. Raises BadConfiguration, and what `read` raises."""
    given = _document(data)
    if given.get("apiVersion") not in VERSIONS or given.get("kind") != "AdmissionConfiguration":
        raise BadConfiguration(f"must be an AdmissionConfiguration of {VERSIONS[0]}")
    plugins = given.get("plugins") or []
    if not isinstance(plugins, list):
        raise BadConfiguration("plugins: must be a list")
    for index, plugin in enumerate(plugins):
        name = str(plugin.get("name") if isinstance(plugin, Mapping) else plugin)
        if name not in PLUGINS:
            raise BadConfiguration(f'plugins[{index}].name: no admission plugin is named "{name}"')
        if name not in _PARSERS:
            raise BadConfiguration(f"plugins[{index}]: the plugin {name} has no configuration here")
        part = plugin.get("configuration")
        if part is None and plugin.get("path"):
            part = _document(read(str(plugin["path"])))
        if part is not None:
            try:
                settings = _PARSERS[name](settings, part)
            except (TypeError, ValueError, AttributeError) as error:
                raise BadConfiguration(f"plugins[{index}] ({name}): {error}") from error
    return settings


def _document(data: bytes) -> Mapping[str, Any]:
    try:
        document = yamls.decode_yaml(data).value
    except BadBody as error:
        raise BadConfiguration(str(error)) from error
    if not isinstance(document, Mapping):
        raise BadConfiguration("must be a mapping")
    return document


def _pod_security(settings: AdmissionSettings, given: Mapping[str, Any]) -> AdmissionSettings:
    return replace(settings, pod_security=pod_security.parse(given))


def _quota(settings: AdmissionSettings, given: Mapping[str, Any]) -> AdmissionSettings:
    kind = given.get("kind")
    if given.get("apiVersion") not in QUOTA_VERSIONS or kind not in ("ResourceQuotaConfiguration", "Configuration"):
        raise ValueError(f"must be a ResourceQuotaConfiguration of {QUOTA_VERSIONS[0]}")
    limited = []
    for index, resource in enumerate(given.get("limitedResources") or ()):
        if not resource.get("resource"):
            raise ValueError(f"limitedResources[{index}].resource: Required value")
        limited.append(
            LimitedResource(
                group=resource.get("apiGroup") or "",
                resource=resource["resource"],
                match_contains=tuple(resource.get("matchContains") or ()),
                match_scopes=tuple(resource.get("matchScopes") or ()),
            )
        )
    return replace(settings, limited_resources=tuple(limited))


_PARSERS: Mapping[str, Callable[[AdmissionSettings, Mapping[str, Any]], AdmissionSettings]] = {
    "PodSecurity": _pod_security,
    "ResourceQuota": _quota,
}
