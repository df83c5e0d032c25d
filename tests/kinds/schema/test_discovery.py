"""Discovery documents: groups, versions and resources, in each form."""

import json
from typing import Any

import pytest

from podwire.kinds.schema.discovery import AGGREGATED, Discovery, Form, negotiate, version_order
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, Reason

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
DISCOVERY = Discovery(BUILTIN.all, address="10.0.0.1:6443")


def fetched(path: str, accept: str = "", discovery: Discovery = DISCOVERY) -> Any:
    document = discovery.document(path, accept)
    assert document is not None
    return json.loads(document.body)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        pytest.param("", Form.PLAIN, id="no header"),
        pytest.param("*/*", Form.PLAIN, id="anything"),
        pytest.param("application/json", Form.PLAIN, id="plain JSON"),
        pytest.param("application/json, */*", Form.PLAIN, id="the Python client"),
        pytest.param(f"{V2},{V2BETA1},application/json", Form.AGGREGATED, id="kubectl from 1.30"),
        pytest.param(f"{V2BETA1},application/json", Form.PLAIN, id="kubectl up to 1.29"),
        pytest.param(f"application/json,{V2}", Form.PLAIN, id="the first form wins"),
        pytest.param(f"application/json;q=0.5,{V2};q=0.9", Form.AGGREGATED, id="the dearest form wins"),
        pytest.param(f"{V2};q=0,application/json", Form.PLAIN, id="a refused form is not sent"),
        pytest.param(f"{V2};profile=nopeer", Form.AGGREGATED, id="other parameters do not matter"),
        pytest.param(
            "application/json; as=APIGroupDiscoveryList; v=v2; g=apidiscovery.k8s.io",
            Form.AGGREGATED,
            id="in any order",
        ),
        pytest.param("application/vnd.kubernetes.protobuf,application/json", Form.PLAIN, id="JSON if need be"),
    ],
)
def test_the_answer_has_the_form_that_the_accept_header_names(accept, form):
    assert negotiate(accept) is form


@pytest.mark.parametrize(
    "accept",
    [
        pytest.param(V2BETA1, id="only v2beta1"),
        pytest.param("application/json;v=v2;as=APIGroupDiscoveryList", id="v2 without its group"),
        pytest.param("application/yaml", id="YAML"),
        pytest.param("application/vnd.kubernetes.protobuf", id="protobuf"),
        pytest.param("application/json;q=0", id="nothing at all"),
    ],
)
def test_a_client_that_accepts_no_available_form_gets_406(accept):
    with pytest.raises(ApiError) as refused:
        negotiate(accept)
    assert (refused.value.reason, refused.value.code) == (Reason.NOT_ACCEPTABLE, 406)


def test_only_the_roots_have_the_aggregated_form():
    assert fetched("/apis/apps/v1", f"{V2},application/json")["kind"] == "APIResourceList"
    with pytest.raises(ApiError):
        DISCOVERY.document("/apis/apps/v1", V2)


def test_versions_are_preferred_from_stable_to_young():
    mixed = ["v1alpha1", "v1", "foo", "v2", "v1beta2", "v10", "v1beta10", "v2alpha1"]
    assert sorted(mixed, key=version_order) == ["v10", "v2", "v1", "v1beta10", "v1beta2", "v2alpha1", "v1alpha1", "foo"]


@pytest.mark.parametrize("path", ["/api", "/api/"])
def test_the_core_group_lists_versions_and_server_address(path):
    assert fetched(path) == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}],
    }


def test_groups_keep_the_order_of_the_table_without_the_core_group():
    groups = fetched("/apis")["groups"]
    assert [group["name"] for group in groups[:4]] == [
        "apiregistration.k8s.io",
        "apps",
        "events.k8s.io",
        "authentication.k8s.io",
    ]
    assert groups[1] == {
        "name": "apps",
        "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
    }


def test_a_group_prefers_its_newest_version():
    group = fetched("/apis/autoscaling")
    assert (group["kind"], group["preferredVersion"]["version"]) == ("APIGroup", "v2")
    assert [version["version"] for version in group["versions"]] == ["v2", "v1"]


def test_a_version_lists_its_resources_and_their_subresources():
    resources = {resource["name"]: resource for resource in fetched("/api/v1")["resources"]}
    assert resources["pods"] == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["po"],
        "categories": ["all"],
    }
    assert resources["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert resources["pods/log"]["kind"] == "Pod"
    assert "group" not in resources["pods/binding"]


def test_aggregated_discovery_lists_all_resources_in_one_answer():
    core = fetched("/api", V2)
    assert (core["kind"], core["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    [group] = core["items"]
    assert (group["metadata"], group["versions"][0]["freshness"]) == ({}, "Current")
    pods = next(resource for resource in group["versions"][0]["resources"] if resource["resource"] == "pods")
    assert pods["responseKind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert pods["scope"] == "Namespaced"
    eviction = next(subresource for subresource in pods["subresources"] if subresource["subresource"] == "eviction")
    assert eviction["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}


def test_both_forms_list_the_same_resources():
    plain = {
        (group["preferredVersion"]["groupVersion"], resource["name"])
        for group in fetched("/apis")["groups"]
        for resource in fetched(f"/apis/{group['preferredVersion']['groupVersion']}")["resources"]
        if "/" not in resource["name"]
    }
    aggregated = {
        (f"{group['metadata']['name']}/{group['versions'][0]['version']}", resource["resource"])
        for group in fetched("/apis", V2)["items"]
        for resource in group["versions"][0]["resources"]
    }
    assert plain == aggregated


def test_aggregated_answers_carry_their_own_type_and_an_etag_that_follows_the_content():
    widget = Kind(group="example.com", version="v1", resource="widgets", kind="Widget", singular="widget")
    before, after = (Discovery(kinds).document("/apis", V2) for kinds in (BUILTIN.all, [*BUILTIN.all, widget]))
    assert before is not None
    assert after is not None
    assert before.content_type == AGGREGATED
    assert before.etag != after.etag
    assert dict(before.headers) == {"ETag": before.etag, "Cache-Control": "public", "Vary": "Accept"}
    assert before.etag == f'"{before.etag.strip(chr(34))}"'


def test_plain_answers_are_plain_json_without_an_etag():
    document = DISCOVERY.document("/apis", "application/json")
    assert document is not None
    assert (document.content_type, document.headers) == ("application/json", ())


@pytest.mark.parametrize(
    "path",
    ["/", "/api/v2", "/api/v1/pods", "/apis/none", "/apis/apps/v2", "/apis//v1", "/apis/apps/v1/deployments", "/apix"],
)
def test_unknown_paths_have_no_discovery_document(path):
    assert DISCOVERY.document(path) is None


def test_a_document_is_rendered_once():
    assert DISCOVERY.document("/apis") is DISCOVERY.document("/apis/")
