from podwire.kinds.crds import kinds_of, selectable_fields, storage_version


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
    assert [(subresource.name, subresource.kind) for subresource in one.subresources] == [
        ("scale", "Scale"),
        ("status", ""),
    ]
    assert (two.version, two.subresources) == ("v2", ())
    assert storage_version(cron_tab) == "v1"
    assert selectable_fields(first) == ("spec.policy",)


def test_accepted_names_are_the_ones_in_force(cron_tab):
    cron_tab["status"] = {"acceptedNames": {**cron_tab["spec"]["names"], "shortNames": [], "listKind": "CronTabs"}}
    (kind,) = kinds_of(cron_tab)
    assert (kind.short_names, kind.list_kind) == ((), "CronTabs")
