from podwire.apiserver.crds import kinds_of, openapi_schemas, selectable_fields, storage_version


def test_each_served_version_is_a_kind(cron_tab):
    first = cron_tab["spec"]["versions"][0]
    cron_tab["spec"]["versions"] += [
        {"name": "v2", "served": True, "storage": False, "schema": first["schema"]},
        {"name": "v0", "served": False, "storage": False, "schema": first["schema"]},
    ]
    one, two = kinds_of(cron_tab)
    assert (one.api_version, one.resource, one.kind, one.namespaced) == (
        "stable.example.com/v1",
        "crontabs",
        "CronTab",
        True,
    )
    assert (one.short_names, one.categories, one.list_kind) == (("ct",), ("all",), "CronTabList")
    assert [(each.name, each.kind) for each in one.subresources] == [("scale", "Scale"), ("status", "")]
    assert [(each.name, each.wide) for each in one.columns] == [
        ("Name", False),
        ("Spec", False),
        ("Replicas", False),
        ("Ready", True),
        ("Age", False),
    ]
    assert (two.version, two.subresources, [each.name for each in two.columns]) == ("v2", (), ["Name", "Age"])
    assert storage_version(cron_tab) == "v1"
    assert selectable_fields(first) == ("spec.policy",)


def test_accepted_names_are_the_ones_in_force(cron_tab):
    cron_tab["status"] = {"acceptedNames": {**cron_tab["spec"]["names"], "shortNames": [], "listKind": "CronTabs"}}
    (kind,) = kinds_of(cron_tab)
    assert (kind.short_names, kind.list_kind) == ((), "CronTabs")


def test_schemas_are_published_with_what_every_object_has(cron_tab):
    published = openapi_schemas(cron_tab)
    own = published["com.example.stable.v1.CronTab"]
    assert own["x-kubernetes-group-version-kind"] == [
        {"group": "stable.example.com", "kind": "CronTab", "version": "v1"}
    ]
    assert own["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]
    assert own["properties"]["spec"]["properties"]["replicas"]["minimum"] == 1
    listed = published["com.example.stable.v1.CronTabList"]
    assert listed["properties"]["items"]["items"] == {"$ref": "#/components/schemas/com.example.stable.v1.CronTab"}


def test_v2_leaves_out_what_its_readers_do_not_understand(cron_tab):
    spec = cron_tab["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"] |= {
        "maybe": {"type": "string", "nullable": True, "description": "d"},
        "either": {"type": "string", "oneOf": [{"pattern": "a"}, {"pattern": "b"}]},
        "free": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"a": {"type": "string"}},
        },
    }
    own = openapi_schemas(cron_tab, v2=True)["com.example.stable.v1.CronTab"]
    found = own["properties"]["spec"]["properties"]
    assert found["maybe"] == {"description": "d"}
    assert found["either"] == {"type": "string"}
    assert "properties" not in found["free"]
    assert own["properties"]["metadata"]["$ref"] == "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    assert spec["properties"]["maybe"]["nullable"], "the definition itself stays as it was"
