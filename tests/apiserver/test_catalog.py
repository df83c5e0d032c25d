"""Every built-in resource has what the verbs need."""

import pytest

from podwire.kinds.catalog import builtin_resources
from podwire.kinds.schema import Schemas
from podwire.protocols.k8sapi.builtin import BUILTIN

RESOURCES = {(resource.kind.api_version, resource.kind.kind): resource for resource in builtin_resources(Schemas())}


def test_every_kind_of_the_table_is_served():
    assert {*RESOURCES} == {(kind.api_version, kind.kind) for kind in BUILTIN.all}


@pytest.mark.parametrize("words", RESOURCES, ids="/".join)
def test_a_resource_knows_its_shape_and_its_columns(words):
    resource = RESOURCES[words]

    assert resource.shape.field("metadata") is not None
    assert resource.prefix.endswith("/")
    if "list" in resource.kind.verbs:
        assert all({"name", "type"} <= {*column} for column in resource.columns())


async def test_every_kind_that_can_be_listed_is_listed_and_watched(api, forms):
    for resource in api.assembled.engine.registry.resources:
        if "list" not in resource.kind.verbs:
            continue
        url = resource.kind.target().path()
        for form in ("object", "table", "metadata"):
            reply = await api.get(url, accept=forms[form])
            assert reply.status == 200, (url, form, reply.raw)
        reply = await api.get(url)
        assert reply.body["kind"] == resource.kind.list_kind


async def test_every_kind_that_can_be_had_is_not_found_by_a_name_that_is_not_there(api):
    for resource in api.assembled.engine.registry.resources:
        if "get" in resource.kind.verbs:
            namespace = "default" if resource.kind.namespaced else ""
            reply = await api.get(resource.kind.target(namespace, "nothing").path())
            assert (reply.status, reply.body["reason"]) == (404, "NotFound"), resource.kind
