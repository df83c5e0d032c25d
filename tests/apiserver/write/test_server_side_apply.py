"""Server-side apply as clients meet it: answers, refusals, conflicts, subresources, custom resources."""

import asyncio

import pytest

from tests.apiserver.support import CONFIGS, DEFINITIONS, PODS, WIDGETS, answer_when

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def configmap(name="one", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name="web", **container):
    given = {"name": "c", "image": "busybox:1.36", **container}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [given]}}


def deployment(**spec):
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    whole = {"selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": whole}


def entry(obj, manager, subresource=None):
    """The only entry of a manager, through a subresource where one is named."""
    found = [
        field
        for field in obj["metadata"].get("managedFields", [])
        if field["manager"] == manager and subresource in (None, field.get("subresource", ""))
    ]
    assert len(found) == 1, obj["metadata"].get("managedFields")
    return found[0]


@pytest.fixture
def apply(api):
    async def apply(url, body, manager="me", **options):
        query = "".join(f"&{key}={value}" for key, value in options.items())
        return await api.patch(f"{url}?fieldManager={manager}{query}", body, "apply")

    return apply


async def test_apply_creates_a_missing_object(api, apply):
    reply = await apply(f"{CONFIGS}/one", configmap(a="1"))
    assert (reply.status, reply.body["data"]) == (201, {"a": "1"})
    assert entry(reply.body, "me") == {
        "manager": "me",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "2027-01-15T08:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}},
    }
    assert (await api.get(f"{CONFIGS}/one")).body == reply.body


async def test_apply_changes_an_existing_object(apply):
    await apply(f"{CONFIGS}/one", configmap(a="1", b="2"))
    reply = await apply(f"{CONFIGS}/one", configmap(a="3"))
    assert (reply.status, reply.body["data"]) == (200, {"a": "3"})


async def test_applying_the_same_again_is_not_a_write(api, apply):
    first = await apply(f"{CONFIGS}/one", configmap(a="1"))
    api.clock.move(60)
    again = await apply(f"{CONFIGS}/one", configmap(a="1"))
    assert (again.status, again.body) == (200, first.body)


async def test_a_quantity_in_another_form_is_not_a_write(api, apply):
    config = pod(resources={"requests": {"cpu": "1000m"}})
    first = await apply(f"{PODS}/web", config)
    assert first.body["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"
    api.clock.move(60)
    again = await apply(f"{PODS}/web", config)
    assert (again.status, again.version) == (200, first.version)


async def test_yaml_does_as_well(apply):
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata:\n  a: 'yes'\n"
    assert (await apply(f"{CONFIGS}/one", text)).body["data"] == {"a": "yes"}


async def test_a_conflict_names_the_field_and_its_manager(api, apply):
    await apply(f"{CONFIGS}/one", configmap(a="1"), "m1")
    reply = await apply(f"{CONFIGS}/one", configmap(a="2"), "m2")
    assert (reply.status, reply.body["reason"]) == (409, "Conflict")
    assert reply.message == 'Apply failed with 1 conflict: conflict with "m1": .data.a'
    assert reply.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "m1"', "field": ".data.a"}
    ]
    assert (await api.get(f"{CONFIGS}/one")).body["data"] == {"a": "1"}


async def test_a_conflict_with_an_update_names_its_version(api, apply):
    await api.post(f"{CONFIGS}?fieldManager=m1", configmap(a="1", b="2"))
    reply = await apply(f"{CONFIGS}/one", configmap(a="2", b="3"), "m2")
    assert reply.message == ('Apply failed with 2 conflicts: conflicts with "m1" using v1:\n- .data.a\n- .data.b')


async def test_force_takes_the_field(apply):
    await apply(f"{CONFIGS}/one", configmap(a="1"), "m1")
    reply = await apply(f"{CONFIGS}/one", configmap(a="2"), "m2", force="true")
    assert (reply.status, reply.body["data"]) == (200, {"a": "2"})
    assert [field["manager"] for field in reply.body["metadata"]["managedFields"]] == ["m2"]


async def test_apply_needs_a_field_manager(api):
    reply = await api.patch(f"{CONFIGS}/one", configmap(), "apply")
    assert reply.status == 422
    assert reply.message == (
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    )


REFUSED = [
    pytest.param({"kind": "ConfigMap"}, 400, "invalid object type: /, Kind=ConfigMap", id="no version"),
    pytest.param({**configmap(), "kind": "Secret"}, 400, "invalid object type: /v1, Kind=Secret", id="kind"),
    pytest.param({**configmap(), "apiVersion": "apps/v1"}, 400, "invalid object type: apps/v1, Kind=ConfigMap",
                 id="version"),
    pytest.param({**configmap(), "dta": {}}, 500,
                 "failed to create typed patch object (/one; /v1, Kind=ConfigMap): "
                 ".dta: field not declared in schema", id="unknown field"),
    pytest.param({**configmap(), "metadata": {"managedFields": []}}, 400, "metadata.managedFields must be nil",
                 id="managers"),
    pytest.param({**configmap(), "metadata": []}, 400, "error decoding YAML", id="metadata"),
    pytest.param([], 400, "error decoding YAML", id="no object"),
    pytest.param({**configmap(), "metadata": {"name": "two"}}, 400, "does not match the name on the URL", id="name"),
    pytest.param({**configmap(), "metadata": {"name": "one", "namespace": "x"}}, 400, "namespace", id="namespace"),
    pytest.param({**configmap(), "metadata": {"name": "one", "uid": "u"}}, 409, "uid mismatch", id="uid"),
    pytest.param({**configmap(), "metadata": {"name": "one", "finalizers": ["a", "a"]}}, 500, "duplicate entries",
                 id="twice in a set"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "code", "part"), REFUSED)
async def test_a_configuration_that_cannot_be_applied_is_refused(api, apply, body, code, part):
    reply = await apply(f"{CONFIGS}/one", body)
    assert reply.status == code, reply.raw
    assert part in reply.message
    assert (await api.get(f"{CONFIGS}/one")).status == 404


async def test_an_empty_name_of_the_version_it_expects_is_a_conflict(apply):
    await apply(f"{CONFIGS}/one", configmap(a="1"))
    config = configmap(a="2")
    config["metadata"]["resourceVersion"] = "1"
    reply = await apply(f"{CONFIGS}/one", config)
    assert (reply.status, reply.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in reply.message


@pytest.mark.parametrize(("validation", "status"), [("Strict", 400), ("Warn", 201), ("Ignore", 201)])
async def test_duplicate_fields_follow_field_validation(apply, validation, status):
    text = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"a":"1","a":"2"}}'
    reply = await apply(f"{CONFIGS}/one", text, fieldValidation=validation)
    assert reply.status == status
    assert bool(reply.warnings) == (validation == "Warn")


async def test_a_duplicate_key_is_reported_with_its_line(apply):
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata:\n  a: '1'\n  a: '2'\n"
    reply = await apply(f"{CONFIGS}/one", text, fieldValidation="Strict")
    assert reply.status == 400
    assert 'line 7: key "a" already set in map' in reply.message


async def test_a_dry_run_changes_nothing(api, apply):
    made = await apply(f"{CONFIGS}/one", configmap(a="1"), dryRun="All")
    assert (made.status, made.body["data"]) == (201, {"a": "1"})
    assert (await api.get(f"{CONFIGS}/one")).status == 404
    await apply(f"{CONFIGS}/one", configmap(a="1"))
    assert (await apply(f"{CONFIGS}/one", configmap(a="2"), dryRun="All")).body["data"] == {"a": "2"}
    assert (await api.get(f"{CONFIGS}/one")).body["data"] == {"a": "1"}


async def test_defaults_are_not_the_applier_s(apply):
    reply = await apply(f"{PODS}/web", pod(ports=[{"containerPort": 80}]))
    assert reply.status == 201, reply.raw
    container = reply.body["spec"]["containers"][0]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert entry(reply.body, "me")["fieldsV1"] == {
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {},
                    "f:name": {},
                    "f:image": {},
                    "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                }
            }
        }
    }


async def test_the_creator_owns_the_defaults_too(api):
    await api.post(f"{PODS}?fieldManager=me", pod())
    fields = entry((await api.get(f"{PODS}/web")).body, "me")["fieldsV1"]
    container = fields["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert container == {
        ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {},
        "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
    }  # fmt: skip
    assert {*fields["f:spec"]} == {
        "f:containers", "f:dnsPolicy", "f:enableServiceLinks", "f:restartPolicy", "f:schedulerName",
        "f:securityContext", "f:terminationGracePeriodSeconds",
    }  # fmt: skip


async def test_two_managers_share_a_deployment(apply):
    """The example of the documentation: an autoscaler takes over the replicas, then the applier lets go of them."""
    await apply(f"{DEPLOYMENTS}/web", deployment(replicas=3), "kubectl")
    scaled = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 5}}
    refused = await apply(f"{DEPLOYMENTS}/web", scaled, "hpa")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas'
    assert (await apply(f"{DEPLOYMENTS}/web", scaled, "hpa", force="true")).body["spec"]["replicas"] == 5
    reply = await apply(f"{DEPLOYMENTS}/web", deployment(), "kubectl")
    assert (reply.status, reply.body["spec"]["replicas"]) == (200, 5)


async def test_a_field_without_an_owner_returns_to_its_default(apply):
    await apply(f"{DEPLOYMENTS}/web", deployment(replicas=3))
    assert (await apply(f"{DEPLOYMENTS}/web", deployment())).body["spec"]["replicas"] == 1


async def test_status_is_applied_through_its_subresource(api, apply):
    await api.made(PODS, pod())
    config = {**pod(), "spec": {"nodeName": "x"}, "status": {"conditions": [{"type": "Mine", "status": "True"}]}}
    reply = await apply(f"{PODS}/web/status", config, "controller")
    assert reply.status == 200, reply.raw
    assert [condition["type"] for condition in reply.body["status"]["conditions"]] == ["Mine"]
    assert "nodeName" not in reply.body["spec"]
    owned = entry(reply.body, "controller")
    assert owned["subresource"] == "status"
    assert owned["fieldsV1"] == {
        "f:status": {"f:conditions": {'k:{"type":"Mine"}': {".": {}, "f:status": {}, "f:type": {}}}}
    }
    again = await apply(f"{PODS}/web/status", {**pod(), "status": {}}, "controller")
    assert "conditions" not in again.body["status"]


async def test_status_of_a_missing_object_is_not_found(apply):
    assert (await apply(f"{PODS}/web/status", {**pod(), "status": {}})).status == 404


async def test_status_is_not_applied_through_the_main_resource(apply):
    reply = await apply(f"{PODS}/web", {**pod(), "status": {"phase": "Running"}})
    assert (reply.status, reply.body["status"]["phase"]) == (201, "Pending")
    assert "f:status" not in entry(reply.body, "me")["fieldsV1"]


async def test_a_scale_is_applied_to_the_replicas(api, apply):
    await apply(f"{DEPLOYMENTS}/web", deployment(replicas=1), "kubectl")
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 4}}
    refused = await apply(f"{DEPLOYMENTS}/web/scale", scale, "hpa")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas'
    reply = await apply(f"{DEPLOYMENTS}/web/scale", scale, "hpa", force="true")
    assert (reply.status, reply.body["kind"], reply.body["spec"]["replicas"]) == (200, "Scale", 4)
    obj = (await api.get(f"{DEPLOYMENTS}/web")).body
    assert entry(obj, "hpa")["subresource"] == "scale"
    assert entry(obj, "hpa")["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in entry(obj, "kubectl")["fieldsV1"]["f:spec"]


async def test_a_scale_that_is_written_is_tracked_as_one(api, apply):
    await apply(f"{DEPLOYMENTS}/web", deployment(replicas=1), "kubectl")
    await api.patch(f"{DEPLOYMENTS}/web/scale?fieldManager=hand", {"spec": {"replicas": 2}})
    obj = (await api.get(f"{DEPLOYMENTS}/web")).body
    assert (entry(obj, "hand")["subresource"], entry(obj, "hand")["apiVersion"]) == ("scale", "apps/v1")
    assert entry(obj, "hand")["fieldsV1"] == {"f:spec": {"f:replicas": {}}}


async def test_ephemeral_containers_are_applied(api, apply):
    await api.made(PODS, pod())
    config = pod()
    config["spec"] = {"ephemeralContainers": [{"name": "debug", "image": "busybox"}], "hostname": "x"}
    reply = await apply(f"{PODS}/web/ephemeralcontainers", config, "debugger")
    assert reply.status == 200, reply.raw
    owned = entry(reply.body, "debugger")
    assert owned["subresource"] == "ephemeralcontainers"
    assert {*owned["fieldsV1"]["f:spec"]} == {"f:ephemeralContainers"}


async def test_many_appliers_at_once_all_get_their_field(racing):
    async def one(number):
        body = configmap(**{f"k{number}": "x"})
        return await racing.patch(f"{CONFIGS}/one?fieldManager=m{number}", body, "apply")

    replies = await asyncio.gather(*(one(number) for number in range(20)))
    assert sorted(reply.status for reply in replies) == [200] * 19 + [201]
    found = (await racing.get(f"{CONFIGS}/one")).body
    assert len(found["data"]) == 20
    assert len(found["metadata"]["managedFields"]) == 20


SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "default": 1},
                "rules": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "to": {"type": "string"}},
                    },
                },
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def widget(version="v1", **parts):
    return {"apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": {"name": "w"}, **parts}


@pytest.fixture
async def structured(api, definition):
    """Widgets with a schema, in two versions."""
    crd = definition("v1", "v2")
    for version in crd["spec"]["versions"]:
        version["schema"] = {"openAPIV3Schema": SCHEMA}
    await api.made(DEFINITIONS, crd)
    await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)
    return api


async def test_custom_resources_are_merged_by_their_schema(structured, apply):
    await apply(f"{WIDGETS}/w", widget(spec={"rules": [{"name": "a", "to": "1"}]}), "one")
    reply = await apply(f"{WIDGETS}/w", widget(spec={"rules": [{"name": "b", "to": "2"}]}), "two")
    assert reply.body["spec"] == {"size": 1, "rules": [{"name": "a", "to": "1"}, {"name": "b", "to": "2"}]}
    left = await apply(f"{WIDGETS}/w", widget(spec={}), "one")
    assert left.body["spec"]["rules"] == [{"name": "b", "to": "2"}]


async def test_a_field_that_the_schema_of_a_custom_resource_lacks_is_refused(structured, apply):
    reply = await apply(f"{WIDGETS}/w", widget(spec={"sise": 1}))
    assert reply.status == 500
    assert reply.message == (
        "failed to create typed patch object (/w; example.com/v1, Kind=Widget): "
        ".spec.sise: field not declared in schema"
    )


async def test_a_controller_reports_the_status_of_a_custom_resource(structured, apply):
    await apply(f"{WIDGETS}/w", widget(spec={"size": 2}), "user")
    report = widget(spec={"size": 9}, status={"phase": "Ready", "seen": {"a": 1}})
    report["metadata"]["labels"] = {"x": "y"}
    reply = await apply(f"{WIDGETS}/w/status", report, "controller")
    assert (reply.body["spec"]["size"], reply.body["status"]["phase"]) == (2, "Ready")
    assert "labels" not in reply.body["metadata"]
    assert entry(reply.body, "controller")["fieldsV1"] == {"f:status": {"f:phase": {}, "f:seen": {".": {}, "f:a": {}}}}
    assert entry(reply.body, "user", "")["fieldsV1"] == {"f:spec": {"f:size": {}}}


async def test_versions_of_a_custom_resource_share_its_managers(structured, apply):
    await apply(f"{WIDGETS}/w", widget(spec={"size": 2}), "one")
    other = WIDGETS.replace("/v1/", "/v2/")
    refused = await apply(f"{other}/w", widget("v2", spec={"size": 3}), "two")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .spec.size'
    moved = await apply(f"{other}/w", widget("v2", spec={"rules": [{"name": "a"}]}), "one")
    assert moved.body["spec"] == {"size": 1, "rules": [{"name": "a"}]}, "what v1 applied is removed through v2"
    assert entry(moved.body, "one")["apiVersion"] == "example.com/v2"


async def test_a_format_that_does_not_exist_is_refused_with_the_others(api, config):
    await api.made(CONFIGS, config("one"))
    reply = await api.call("PATCH", f"{CONFIGS}/one", b"x", content_type="application/apply-patch+toml")
    assert reply.status == 415
    assert reply.message.endswith("application/apply-patch+yaml")
