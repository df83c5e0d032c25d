"""Definitions that are taken and definitions that are not."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.kinds.crds import definition


def texts(errors):
    return [str(error) for error in errors]


def changed(crd, path, value):
    """A copy of the definition with one value put in place, or taken away."""
    crd = copy.deepcopy(crd)
    at = crd
    for word in path[:-1]:
        at = at[word]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return crd


VERSION = ("spec", "versions", 0)
SCHEMA = (*VERSION, "schema", "openAPIV3Schema")
WHERE = "spec.versions[0].schema.openAPIV3Schema"


def test_a_valid_definition_is_accepted(cron_tab):
    assert texts(definition.create(cron_tab)) == []


NAME_RULE = 'must be spec.names.plural+"."+spec.group'


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        pytest.param(
            ("metadata", "name"), "crontabs.x", f'metadata.name: Invalid value: "crontabs.x": {NAME_RULE}', id="name"
        ),
        pytest.param(("spec", "scope"), "World", 'spec.scope: Unsupported value: "World"', id="scope"),
        pytest.param(("spec", "scope"), None, "spec.scope: Required value", id="no scope"),
        pytest.param(("spec", "group"), "dotless", "should be a domain with at least one dot", id="group"),
        pytest.param(("spec", "names", "kind"), None, "spec.names.kind: Required value", id="no kind"),
        pytest.param(
            ("spec", "names", "kind"), "Cron Tab", "may have mixed case, but should otherwise match", id="kind"
        ),
        pytest.param(("spec", "names", "listKind"), "CronTab", "kind and listKind may not be the same", id="list kind"),
        pytest.param(("spec", "names", "shortNames"), ["C"], "spec.names.shortNames[0]: Invalid", id="short name"),
        pytest.param((*VERSION, "name"), "V1", 'spec.versions[0].name: Invalid value: "V1"', id="version"),
        pytest.param((*VERSION, "storage"), False, "must have exactly one version marked as storage", id="no storage"),
        pytest.param((*VERSION, "served"), False, "must have at least one served version", id="none served"),
        pytest.param((*VERSION, "schema"), None, f"{WHERE}: Required value: schemas are required", id="no schema"),
        pytest.param(
            ("spec", "preserveUnknownFields"), True, "spec.preserveUnknownFields: Invalid value: true", id="old style"
        ),
        pytest.param(
            ("spec", "conversion"),
            {"strategy": "Webhook", "webhook": {}},
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            id="conversion webhook",
        ),
        pytest.param(
            (*VERSION, "additionalPrinterColumns", 0, "jsonPath"),
            "spec",
            "must be a simple json path",
            id="column path",
        ),
        pytest.param(
            (*VERSION, "additionalPrinterColumns", 0, "type"), "text", "must be one of boolean,date", id="column type"
        ),
        pytest.param(
            (*VERSION, "subresources", "scale", "specReplicasPath"),
            ".status.replicas",
            "should be a json path under .spec",
            id="scale path",
        ),
        pytest.param(
            (*VERSION, "selectableFields", 0, "jsonPath"),
            ".spec.nope",
            "does not refer to a valid field",
            id="selector",
        ),
        pytest.param(
            (*VERSION, "selectableFields", 0, "jsonPath"),
            ".status.conditions",
            "must point to a field of type",
            id="list",
        ),
        pytest.param(
            (*VERSION, "selectableFields"),
            [{"jsonPath": ".spec.policy"}] * 2,
            'jsonPath: Duplicate value: ".spec.policy"',
            id="selector twice",
        ),
        pytest.param((*VERSION, "deprecationWarning"), "old", "can only be set for deprecated versions", id="warning"),
    ],
)
def test_invalid_definitions_are_rejected_with_upstreams_errors(cron_tab, path, value, expected):
    errors = texts(definition.create(changed(cron_tab, path, value)))
    assert any(expected in error for error in errors), errors


FIELD = (*SCHEMA, "properties", "spec", "properties", "image")
AT = f"{WHERE}.properties[spec].properties[image]"
ITEM = {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "o": {"type": "object"}}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param({}, f"{AT}.type: Required value: must not be empty for specified object fields", id="no type"),
        pytest.param({"type": "text"}, f'{AT}.type: Unsupported value: "text"', id="no such type"),
        pytest.param({"type": "null"}, "type cannot be set to null, use nullable as an alternative", id="null"),
        pytest.param({"type": "array"}, f"{AT}.items: Required value: must be specified", id="list of what"),
        pytest.param({"type": "array", "items": {}}, "must not be empty for specified array items", id="item type"),
        pytest.param({"type": "array", "items": [{}]}, "items must be a schema object and not an array", id="tuple"),
        pytest.param({"$ref": "#/x", "type": "object"}, f"{AT}.$ref: Forbidden: $ref is not supported", id="reference"),
        pytest.param({"type": "array", "items": ITEM, "uniqueItems": True}, "becomes quadratic", id="unique items"),
        pytest.param({"type": "object", "additionalProperties": False}, "cannot be set to false", id="closed"),
        pytest.param(
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
            "additionalProperties and properties are mutual exclusive",
            id="map and struct",
        ),
        pytest.param(
            {"type": "object", "x-kubernetes-preserve-unknown-fields": False}, "must be true or undefined", id="pruning"
        ),
        pytest.param(
            {"type": "string", "allOf": [{"x-kubernetes-validations": [{"rule": "self != ''"}]}]},
            f"{AT}.allOf[0].x-kubernetes-validations: Forbidden: must be empty to be structural",
            id="rules in alternatives",
        ),
        pytest.param(
            {"type": "string", "x-kubernetes-validations": [{"rule": "self > 5"}]},
            "found no matching overload for '_>_' applied to '(string, int)'",
            id="rules",
        ),
        pytest.param(
            {"type": "string", "pattern": "(?=a)"}, "must be a valid regular expression, but isn't", id="pattern"
        ),
        pytest.param(
            {"type": "string", "anyOf": [{"type": "string"}]},
            f"{AT}.anyOf[0].type: Forbidden: must be empty to be structural",
            id="types in alternatives",
        ),
        pytest.param(
            {"type": "object", "not": {"properties": {"a": {"default": 1}}}},
            f"{AT}.not.properties[a].default: Forbidden: must be undefined to be structural",
            id="defaults in alternatives",
        ),
        pytest.param(
            {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
            "must be false if x-kubernetes-int-or-string is true",
            id="int or string or anything",
        ),
        pytest.param(
            {"type": "string", "x-kubernetes-embedded-resource": True}, "must be object if", id="embedded string"
        ),
        pytest.param(
            {"type": "object", "x-kubernetes-embedded-resource": True},
            f"{AT}.properties: Required",
            id="empty embedded",
        ),
        pytest.param({"type": "string", "x-kubernetes-list-type": "set"}, "must be array if", id="set of letters"),
        pytest.param(
            {"type": "array", "items": ITEM, "x-kubernetes-list-type": "bag"}, 'Unsupported value: "bag"', id="bag"
        ),
        pytest.param(
            {"type": "array", "items": ITEM, "x-kubernetes-list-type": "map"}, "must not be empty if", id="no keys"
        ),
        pytest.param(
            {
                "type": "array",
                "items": ITEM,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["nope"],
            },
            "entries must all be names of item properties",
            id="unknown key",
        ),
        pytest.param(
            {"type": "array", "items": ITEM, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["o"]},
            "must be a scalar type",
            id="object as key",
        ),
        pytest.param(
            {"type": "array", "items": ITEM, "x-kubernetes-list-type": "set"},
            "must be atomic as item",
            id="objects in a set",
        ),
        pytest.param({"type": "string", "x-kubernetes-map-type": "atomic"}, "must be object if", id="map type"),
        pytest.param({"type": "string", "minLength": "3"}, "has the wrong type", id="odd keyword"),
        pytest.param({"type": "object", "required": [{}]}, "must be a list of strings", id="odd names"),
        pytest.param({"type": "integer", "default": "x"}, "must be of type integer", id="default of the wrong type"),
        pytest.param(
            {**ITEM, "default": {"k": "x", "z": 1}}, "must not have unknown fields: z", id="default too large"
        ),
        pytest.param({**ITEM, "default": {}}, f"{AT}.default.k: Required value", id="default too small"),
    ],
)
def test_schemas_must_be_structural(cron_tab, schema, expected):
    errors = texts(definition.create(changed(cron_tab, FIELD, schema)))
    assert any(expected in error for error in errors), errors


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"x-kubernetes-preserve-unknown-fields": True}, id="anything"),
        pytest.param(
            {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, id="int or string"
        ),
        pytest.param(
            {
                "x-kubernetes-int-or-string": True,
                "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "^a"}],
            },
            id="int or string and more",
        ),
        pytest.param({"type": "object", "additionalProperties": {"type": "array", "items": ITEM}}, id="map of lists"),
        pytest.param(
            {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
            id="any object",
        ),
        pytest.param({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, id="alternatives"),
        pytest.param({"type": "string", "nullable": True, "default": None}, id="null by default"),
    ],
)
def test_structural_schemas_are_accepted(cron_tab, schema):
    assert texts(definition.create(changed(cron_tab, FIELD, schema))) == []


@pytest.mark.parametrize(
    ("metadata", "fine"),
    [
        pytest.param({"type": "object"}, True, id="plain"),
        pytest.param({"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}, True, id="name"),
        pytest.param({"type": "object", "properties": {"labels": {"type": "object"}}}, False, id="labels"),
        pytest.param({"type": "string"}, False, id="no object"),
        pytest.param(
            {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}, False, id="a default name"
        ),
    ],
)
def test_metadata_may_only_restrict_names(cron_tab, metadata, fine):
    errors = texts(definition.create(changed(cron_tab, (*SCHEMA, "properties", "metadata"), metadata)))
    assert bool(errors) is not fine, errors


def test_groups_of_kubernetes_itself_need_approval(cron_tab):
    crd = changed(cron_tab, ("spec", "group"), "stable.k8s.io")
    crd["metadata"]["name"] = "crontabs.stable.k8s.io"
    assert "api-approved.kubernetes.io" in texts(definition.create(crd))[0]
    crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, an experiment"}
    assert definition.create(crd) == []


ESTABLISHED = {"conditions": [{"type": "Established", "status": "True"}], "storedVersions": ["v1"]}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        pytest.param(("spec", "scope"), "Cluster", "spec.scope: Invalid value", id="scope"),
        pytest.param(("spec", "names", "kind"), "Other", "spec.names.kind: Invalid value", id="kind"),
        pytest.param((*VERSION, "name"), "v2", "status.storedVersions[0]: Invalid value", id="a stored version"),
    ],
)
def test_an_established_definition_cannot_change_scope_and_kind(cron_tab, path, value, expected):
    old = {**cron_tab, "status": ESTABLISHED}
    errors = texts(definition.update(changed(old, path, value), old))
    assert any(error.startswith(expected) for error in errors), errors


def test_a_definition_that_is_not_established_may_change_its_scope(cron_tab):
    assert definition.update(changed(cron_tab, ("spec", "scope"), "Cluster"), cron_tab) == []


def test_schemas_that_are_too_deep_are_rejected(cron_tab):
    schema = {"type": "string"}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}
    errors = texts(definition.create(changed(cron_tab, FIELD, schema)))
    assert any("nested" in error for error in errors)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["object", "string", "map", "^a", ""]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "items",
                    "additionalProperties",
                    "default",
                    "enum",
                    "anyOf",
                    "not",
                    "required",
                    "pattern",
                    "minimum",
                    "x-kubernetes-list-type",
                    "x-kubernetes-list-map-keys",
                    "x-kubernetes-embedded-resource",
                    "metadata",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(schema=ODD)
def test_any_schema_is_accepted_or_rejected_with_errors(schema):
    crd = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}
    assert texts(definition.create(crd))
