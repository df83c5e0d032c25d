"""Custom resources: definitions are established and served as they come, change and go."""

import logging

import pytest

from podwire.apiserver import custom_resources
from podwire.store.memory import MemoryStore
from tests.apiserver.support import answer_when

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/widgets.example.com"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


def widget(name="w", version="v1", **rest):
    return {"apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": {"name": name}, **rest}


def served(version="v1"):
    return WIDGETS.replace("/v1/", f"/{version}/", 1)


@pytest.fixture
def define(api, definition):
    """Makes a definition and waits until its first version is served."""

    async def make(*versions, **more):
        await api.made(DEFINITIONS, definition(*versions, **more))
        url = served((versions or ("v1",))[0])
        await answer_when(lambda: api.get(url), lambda reply: reply.status == 200)

    return make


def conditions(body):
    return {condition["type"]: condition["status"] for condition in body["status"].get("conditions", [])}


# --- coming -----------------------------------------------------------------------------------------------------------


async def test_before_it_is_defined_there_is_nothing(api):
    assert (await api.get(WIDGETS)).status == 404


async def test_a_definition_is_established_and_reports_it(api, define):
    await define()

    body = (await api.get(DEFINITION)).body

    assert conditions(body) == {"NamesAccepted": "True", "Established": "True"}
    assert body["status"]["storedVersions"] == ["v1"]
    assert body["status"]["acceptedNames"]["plural"] == "widgets"
    assert body["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]


async def test_its_objects_live_like_any_other(api, define):
    await define()
    watch = await api.watch(WIDGETS)

    made = await api.made(WIDGETS, widget(spec={"size": 1}))
    await api.put(f"{WIDGETS}/w", {**made, "spec": {"size": 2}})
    await api.patch(f"{WIDGETS}/w", {"spec": {"color": "red"}})
    listed = await api.get(WIDGETS)
    await api.delete(f"{WIDGETS}/w")

    assert (listed.body["kind"], listed.body["apiVersion"]) == ("WidgetList", "example.com/v1")
    assert listed.body["items"][0]["spec"] == {"size": 2, "color": "red"}
    assert listed.body["items"][0]["metadata"]["generation"] == 3
    frames = await watch.take(4)
    assert [frame["type"] for frame in frames] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert {frame["object"]["apiVersion"] for frame in frames} == {"example.com/v1"}


async def test_a_schema_validates_and_defaults_its_objects(api, define):
    properties = {"size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "default": "blue"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    await define(schema={"openAPIV3Schema": schema})

    made = await api.made(WIDGETS, widget("good", spec={"size": 1, "unknown": True}))
    bad = await api.post(WIDGETS, widget("bad", spec={"size": 0}))
    strict = await api.post(f"{WIDGETS}?fieldValidation=Strict", widget("strict", spec={"unknown": True}))

    assert made["spec"] == {"size": 1, "color": "blue"}
    assert bad.status == 422
    assert "spec.size in body should be greater than or equal to 1" in bad.message
    assert strict.status == 400
    assert 'unknown field "spec.unknown"' in strict.message


async def test_its_columns_are_shown_in_tables(api, define, forms):
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    await define(additionalPrinterColumns=columns)
    await api.made(WIDGETS, widget(spec={"size": 7}))

    table = (await api.get(WIDGETS, accept=forms["table"])).body

    assert [definition["name"] for definition in table["columnDefinitions"]] == ["Name", "Size"]
    assert table["rows"][0]["cells"] == ["w", 7]


async def test_a_cluster_wide_kind_has_no_namespace(api, definition):
    await api.made(DEFINITIONS, definition(scope="Cluster"))
    url = "/apis/example.com/v1/widgets"
    await answer_when(lambda: api.get(url), lambda reply: reply.status == 200)

    made = await api.made(url, widget())

    assert "namespace" not in made["metadata"]
    assert (await api.get(f"{url}/w")).body == made
    assert (await api.get(WIDGETS)).status == 404


async def test_a_namespace_that_is_not_there_takes_no_custom_objects(api, define):
    await define()

    assert (await api.post(WIDGETS.replace("default", "nowhere"), widget())).status == 404


async def test_names_that_another_definition_has_are_not_accepted(api, define, definition):
    await define()
    other = definition()
    other["metadata"]["name"] = "gadgets.example.com"
    other["spec"]["names"] = {"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"}
    await api.made(DEFINITIONS, other)

    url = f"{DEFINITIONS}/gadgets.example.com"
    reply = await answer_when(lambda: api.get(url), lambda reply: "conditions" in reply.body.get("status", {}))

    assert conditions(reply.body) == {"NamesAccepted": "False", "Established": "False"}
    assert (await api.get("/apis/example.com/v1/namespaces/default/gadgets")).status == 404


async def test_a_definition_that_is_wrong_is_refused(api, definition):
    given = definition()
    given["metadata"]["name"] = "other.example.com"

    reply = await api.post(DEFINITIONS, given)

    assert reply.status == 422
    assert 'must be spec.names.plural+"."+spec.group' in reply.message


# --- versions ---------------------------------------------------------------------------------------------------------


async def test_an_object_is_served_in_every_version(api, define):
    await define("v1", "v1beta1")
    made = await api.made(served("v1beta1"), widget(version="v1beta1", spec={"size": 1}))

    new, old = [await api.get(f"{served(name)}/w") for name in ("v1", "v1beta1")]

    lies = await api.store.get("/registry/example.com/widgets/default/w")
    assert lies.value.startswith(b'{"kind":"Widget","apiVersion":"example.com/v1",')
    assert made["apiVersion"] == "example.com/v1beta1"
    assert (new.body["apiVersion"], old.body["apiVersion"]) == ("example.com/v1", "example.com/v1beta1")
    assert {**new.body, "apiVersion": ""} == {**old.body, "apiVersion": ""}


async def test_watches_of_two_versions_show_one_change_in_two_words(api, define):
    await define("v1", "v1beta1")
    first, second = await api.watch(served("v1")), await api.watch(served("v1beta1"))

    await api.made(served("v1"), widget())

    assert (await first.next())["object"]["apiVersion"] == "example.com/v1"
    assert (await second.next())["object"]["apiVersion"] == "example.com/v1beta1"


async def test_a_version_that_is_not_served_any_more_is_not_found(api, define):
    await define("v1", "v1beta1")
    await api.made(served("v1"), widget())
    crd = (await api.get(DEFINITION)).body
    crd["spec"]["versions"][1]["served"] = False

    assert (await api.put(DEFINITION, crd)).status == 200

    await answer_when(lambda: api.get(served("v1beta1")), lambda reply: reply.status == 404)
    assert (await api.get(f"{served('v1')}/w")).status == 200


async def test_objects_stay_readable_and_writable_when_the_storage_version_changes(api, define):
    await define("v1alpha1", "v1")
    old = await api.made(served("v1alpha1"), widget(version="v1alpha1", spec={"size": 1}))
    crd = (await api.get(DEFINITION)).body
    for item in crd["spec"]["versions"]:
        item["storage"] = item["name"] == "v1"
    await api.put(DEFINITION, crd)
    await answer_when(
        lambda: api.get(DEFINITION), lambda reply: reply.body["status"]["storedVersions"] == ["v1alpha1", "v1"]
    )

    for version in ("v1alpha1", "v1"):
        read = await api.get(f"{served(version)}/w")
        assert read.body["apiVersion"] == f"example.com/{version}"
        assert read.body["spec"] == {"size": 1}
        assert read.body["metadata"]["uid"] == old["metadata"]["uid"]
    assert (await api.get(served("v1"))).body["items"][0]["apiVersion"] == "example.com/v1"
    written = await api.patch(f"{served('v1')}/w", {"spec": {"size": 2}})
    assert written.body["spec"] == {"size": 2}
    assert (await api.get(f"{served('v1alpha1')}/w")).body["spec"] == {"size": 2}


async def test_a_new_schema_applies_to_later_writes(api, define):
    await define()
    await api.made(WIDGETS, widget("before", spec={"size": 0}))
    crd = (await api.get(DEFINITION)).body
    size = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}}
    schema = {"type": "object", "properties": {"spec": size}}
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}

    await api.put(DEFINITION, crd)
    late = widget("late", spec={"size": 0})
    await answer_when(lambda: api.post(f"{WIDGETS}?dryRun=All", late), lambda reply: reply.status == 422)

    assert (await api.get(f"{WIDGETS}/before")).body["spec"] == {"size": 0}


# --- going ------------------------------------------------------------------------------------------------------------


async def test_a_terminating_definition_accepts_no_new_objects(api, define):
    await define()
    await api.made(WIDGETS, widget())

    reply = await api.delete(DEFINITION)

    assert reply.body["metadata"]["deletionTimestamp"]
    await answer_when(lambda: api.post(f"{WIDGETS}?dryRun=All", widget("late")), lambda reply: reply.status == 405)
    assert (await api.get(WIDGETS)).names == ["w"]
    assert (await api.delete(f"{WIDGETS}/w")).status == 200


async def test_a_definition_that_is_gone_is_not_served(api, define):
    await define()
    await api.delete(DEFINITION)

    await api.patch(DEFINITION, {"metadata": {"finalizers": None}})

    assert (await api.get(DEFINITION)).status == 404
    await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 404)
    assert (await api.get("/apis/example.com/v1")).status == 404
    assert "example.com" not in {group["name"] for group in (await api.get("/apis")).body["groups"]}


# --- restarts and troubles --------------------------------------------------------------------------------------------


async def test_after_a_restart_everything_is_served_before_the_first_request(serve, definition):
    store = MemoryStore()
    first = await serve(store)
    await first.made(DEFINITIONS, definition())
    await answer_when(lambda: first.get(WIDGETS), lambda reply: reply.status == 200)
    await first.made(WIDGETS, widget())

    second = await serve(store, account=False)

    assert (await second.get(WIDGETS)).names == ["w"]


async def test_one_definition_that_cannot_be_served_does_not_take_the_others_down(
    api, define, definition, monkeypatch, caplog
):
    await define()
    compiled = custom_resources.compile_schema
    monkeypatch.setattr(
        custom_resources,
        "compile_schema",
        lambda schema, meta: 1 / 0 if "description" in schema else compiled(schema, meta),
    )
    bad = definition(schema={"openAPIV3Schema": {"type": "object", "description": "breaks"}})
    bad["metadata"]["name"] = "gadgets.example.com"
    bad["spec"]["names"] = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}

    with caplog.at_level(logging.ERROR):
        await api.made(DEFINITIONS, bad)
        await answer_when(
            lambda: api.get(f"{DEFINITIONS}/gadgets.example.com"),
            lambda reply: "conditions" in reply.body.get("status", {}),
        )

    assert (await api.get(WIDGETS)).status == 200
    assert (await api.get("/apis/example.com/v1/namespaces/default/gadgets")).status == 404


async def test_the_status_cannot_be_made_up_by_the_creator(api, definition):
    condition = {"type": "Established", "status": "True", "reason": "x", "message": "", "lastTransitionTime": None}
    given = {**definition(), "status": {"conditions": [condition], "storedVersions": ["v0"], "acceptedNames": {}}}

    await api.made(DEFINITIONS, given)

    reply = await answer_when(lambda: api.get(DEFINITION), lambda reply: "Established" in conditions(reply.body))
    assert reply.body["status"]["storedVersions"] == ["v1"]
