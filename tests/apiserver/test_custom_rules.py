"""Rules of a definition, whichever way an object is written; and several versions whose schemas differ."""

import pytest

from tests.apiserver.support import answer_when

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/widgets.example.com"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
BETA = WIDGETS.replace("/v1/", "/v1beta1/")

INT = {"type": "integer"}
RULES = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"least": INT, "most": INT, "mode": {"type": "string", "maxLength": 9}},
            "x-kubernetes-validations": [
                {"rule": "self.least <= self.most", "fieldPath": ".least",
                 "messageExpression": "'least must not be above %d'.format([self.most])"},
                {"rule": "!has(oldSelf.mode) || self.?mode == oldSelf.?mode", "message": "mode is fixed",
                 "reason": "FieldValueForbidden"},
            ],
        },
        "status": {
            "type": "object",
            "properties": {"now": INT},
        },
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.status) || !has(self.status.now) || self.status.now <= self.spec.most",
         "message": "more than there may be"},
        {"rule": "self.metadata.name.startsWith('w')", "message": "must be called w"},
    ],
}  # fmt: skip


def widget(name="w", version="v1", **rest):
    return {"apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": {"name": name}, **rest}


@pytest.fixture
def define(api, definition):
    """Makes a definition whose versions have the given schemas, and waits until they are served."""

    async def make(change=None, **schemas):
        made = definition(*schemas)
        for version in made["spec"]["versions"]:
            version["schema"] = {"openAPIV3Schema": schemas[version["name"]]}
        if change:
            change(made["spec"]["versions"])
        await api.made(DEFINITIONS, made)
        await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)

    return make


async def redefine(api, change, done):
    """Changes a definition and waits until that is seen."""
    crd = (await api.get(DEFINITION)).body
    change(crd["spec"]["versions"])
    reply = await api.put(DEFINITION, crd)
    assert reply.status == 200, reply.message
    await answer_when(lambda: api.get(f"{WIDGETS}/w"), done)


async def test_a_definition_with_invalid_rules_is_refused(api, definition):
    made = definition("v1", schema={"openAPIV3Schema": {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-validations": [{"rule": "self.size > 1"}]}},
    }})  # fmt: skip
    reply = await api.post(DEFINITIONS, made)

    assert reply.status == 422
    [cause] = reply.body["details"]["causes"]
    path = "spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    assert (cause["field"], cause["reason"]) == (path, "FieldValueInvalid")
    assert (
        "compilation failed: ERROR: <input>:1:5: undefined field 'size'\n | self.size > 1\n | ....^" in cause["message"]
    )


async def test_a_rule_is_enforced_on_every_write(api, define):
    await define(v1=RULES)
    good = await api.made(WIDGETS, widget(spec={"least": 1, "most": 3, "mode": "a"}))
    wrong = {"least": 5, "most": 3, "mode": "a"}
    message = "spec.least: Invalid value: least must not be above 3"

    replies = [
        await api.post(WIDGETS, widget("w2", spec=wrong)),
        await api.put(f"{WIDGETS}/w", {**good, "spec": wrong}),
        await api.patch(f"{WIDGETS}/w", {"spec": {"least": 5}}),
        await api.patch(f"{WIDGETS}/w", [{"op": "replace", "path": "/spec/least", "value": 5}], kind="json"),
        await api.post(f"{WIDGETS}?dryRun=All", widget("w2", spec=wrong)),
    ]

    assert [reply.status for reply in replies] == [422] * 5
    assert all(message in reply.message for reply in replies)
    assert replies[1].body["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "message": "Invalid value: least must not be above 3", "field": "spec.least"}
    ]
    assert (await api.get(f"{WIDGETS}/w")).body["spec"]["least"] == 1


async def test_a_rule_is_enforced_on_apply(api, define):
    await define(v1=RULES)
    url = f"{WIDGETS}/w?fieldManager=me"
    made = await api.patch(url, widget(spec={"least": 1, "most": 3}), kind="apply")
    reply = await api.patch(url, widget(spec={"least": 4, "most": 3}), kind="apply")
    assert (made.status, reply.status) == (201, 422)
    assert "spec.least: Invalid value: least must not be above 3" in reply.message
    assert (await api.patch(f"{url}&dryRun=All", widget(spec={"least": 2, "most": 3}), kind="apply")).status == 200


async def test_a_transition_rule_sees_the_stored_object(api, define):
    await define(v1=RULES)
    await api.made(WIDGETS, widget(spec={"least": 1, "most": 3, "mode": "a"}))

    reply = await api.patch(f"{WIDGETS}/w", {"spec": {"mode": "b"}})

    assert (reply.status, reply.body["message"]) == (
        422,
        'Widget.example.com "w" is invalid: spec: Forbidden: mode is fixed',
    )
    assert (await api.patch(f"{WIDGETS}/w", {"spec": {"most": 4}})).status == 200


async def test_a_status_is_validated_with_the_whole_object(api, define):
    await define(v1=RULES)
    await api.made(WIDGETS, widget(spec={"least": 1, "most": 3}))

    reply = await api.patch(f"{WIDGETS}/w/status", {"status": {"now": 9}})

    assert (reply.status, reply.message) == (
        422,
        'Widget.example.com "w" is invalid: <nil>: Invalid value: more than there may be',
    )
    assert (await api.patch(f"{WIDGETS}/w/status", {"status": {"now": 2}})).status == 200


async def test_an_object_may_be_called_by_a_rule(api, define):
    await define(v1=RULES)
    reply = await api.post(WIDGETS, widget("x", spec={"least": 1, "most": 3}))
    assert "must be called w" in reply.message


async def test_schema_errors_are_reported_before_rules_run(api, define):
    await define(v1=RULES)
    reply = await api.post(WIDGETS, widget(spec={"least": "one", "most": 3}))
    assert 'must be of type integer: "string"' in reply.message
    assert "some validation rules were not checked because the object was invalid" in reply.message


async def test_a_new_rule_counts_from_now_on(api, define):
    await define(v1={"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": INT}}}})
    await api.made(WIDGETS, widget(spec={"size": 1}))
    crd = (await api.get(DEFINITION)).body
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["size"]["x-kubernetes-validations"] = [{"rule": "self % 2 == 0", "message": "must be even"}]
    assert (await api.put(DEFINITION, crd)).status == 200

    late = widget("late", spec={"size": 3})
    reply = await answer_when(lambda: api.post(f"{WIDGETS}?dryRun=All", late), lambda reply: reply.status == 422)

    assert "spec.size: Invalid value: 3: must be even" in reply.message
    assert (await api.get(f"{WIDGETS}/w")).body["spec"] == {"size": 1}


# --- versions ---------------------------------------------------------------------------------------------------------

NEW = {"type": "object", "properties": {
    "spec": {"type": "object", "properties": {"size": INT, "colour": {"type": "string", "default": "blue"}}},
}}  # fmt: skip
OLD = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": INT, "shape": INT}}}}


async def test_every_version_shows_the_fields_of_its_own_schema(api, define):
    await define(v1=NEW, v1beta1=OLD)
    await api.made(BETA, widget(version="v1beta1", spec={"size": 1, "shape": 4, "colour": "red"}))

    new, old = (await api.get(f"{WIDGETS}/w")).body, (await api.get(f"{BETA}/w")).body
    listed = (await api.get(WIDGETS)).body["items"]

    assert new["spec"] == listed[0]["spec"] == {"size": 1, "colour": "blue"}
    assert old["spec"] == {"size": 1, "shape": 4}
    assert (await api.get(f"{WIDGETS}?fieldSelector=metadata.name=w")).names == ["w"]


async def test_a_watch_shows_the_fields_of_its_version(api, define):
    await define(v1=NEW, v1beta1=OLD)
    new, old = await api.watch(WIDGETS), await api.watch(BETA)

    await api.made(BETA, widget(version="v1beta1", spec={"size": 1, "shape": 4}))

    assert (await new.next())["object"]["spec"] == {"size": 1, "colour": "blue"}
    assert (await old.next())["object"]["spec"] == {"size": 1, "shape": 4}


async def test_a_later_default_is_seen_in_stored_objects(api, define):
    plain = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": INT}}}}
    await define(v1=plain)
    await api.made(WIDGETS, widget(spec={"size": 1}))

    def coloured(versions):
        versions[0]["schema"]["openAPIV3Schema"] = NEW
        versions[0]["selectableFields"] = [{"jsonPath": ".spec.colour"}]

    await redefine(api, coloured, lambda reply: reply.body["spec"] == {"size": 1, "colour": "blue"})

    assert (await api.get(f"{WIDGETS}?fieldSelector=spec.colour=blue")).names == ["w"]
    assert (await api.get(f"{WIDGETS}?fieldSelector=spec.colour=red")).names == []


async def test_a_field_that_is_taken_out_of_the_schema_is_not_seen_any_more(api, define):
    await define(v1=OLD)
    await api.made(WIDGETS, widget(spec={"size": 1, "shape": 2}))

    def simpler(versions):
        del versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shape"]

    await redefine(api, simpler, lambda reply: reply.body["spec"] == {"size": 1})


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ({}, "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget"),
        ({"deprecationWarning": "move on"}, "move on"),
    ],
    ids=["the server's words", "the author's words"],
)  # fmt: skip
async def test_a_deprecated_version_answers_with_a_warning(api, define, words, reported):
    await define(lambda versions: versions[1].update(deprecated=True, **words), v1=NEW, v1beta1=NEW)
    made = await api.post(BETA, widget(version="v1beta1"))

    replies = [made, await api.get(BETA), await api.get(f"{BETA}/w"), await api.delete(f"{BETA}/w")]

    assert [reply.warnings for reply in replies] == [[f'299 - "{reported}"']] * 4
    assert (await api.get(WIDGETS)).warnings == []


async def test_the_oldest_version_may_be_the_only_one_left(api, define):
    await define(lambda versions: versions[0].update(deprecated=True), v1=NEW, v1beta1=NEW)
    assert (await api.get(WIDGETS)).warnings == ['299 - "example.com/v1 Widget is deprecated"']


async def test_conversion_by_webhook_needs_the_address_of_one(api, definition):
    made = definition("v1", "v1beta1")
    made["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}
    reply = await api.post(DEFINITIONS, made)
    assert reply.status == 422
    assert (
        "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook" in reply.message
    )


async def test_rules_and_fields_are_published_in_openapi(api, define):
    await define(v1=RULES, v1beta1=OLD)
    index = await answer_when(
        lambda: api.get("/openapi/v3"), lambda reply: "apis/example.com/v1beta1" in reply.body["paths"]
    )
    new = (await api.get(index.body["paths"]["apis/example.com/v1"]["serverRelativeURL"])).body
    old = (await api.get(index.body["paths"]["apis/example.com/v1beta1"]["serverRelativeURL"])).body
    [reported] = [each for name, each in new["components"]["schemas"].items() if name.endswith("v1.Widget")]
    assert (
        reported["properties"]["spec"]["x-kubernetes-validations"]
        == (RULES["properties"]["spec"]["x-kubernetes-validations"])
    )
    [reported] = [each for name, each in old["components"]["schemas"].items() if name.endswith("v1beta1.Widget")]
    assert set(reported["properties"]["spec"]["properties"]) == {"size", "shape"}
