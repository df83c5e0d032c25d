"""APIServices of the groups that the server serves itself."""

import msgspec
import pytest

from podwire.apiserver.local_services import (
    ALWAYS,
    LABEL,
    ON_START,
    PRIORITIES,
    Definition,
    builtin_services,
    custom_services,
    plan,
)
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.store.memory import MemoryStore
from tests.apiserver.support import DEFINITIONS, TABLE, answer_when

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def test_every_built_in_group_but_the_aggregators_own_has_priorities():
    served = {(kind.group, kind.version) for kind in BUILTIN.all}

    assert served - PRIORITIES.keys() == {("apiregistration.k8s.io", "v1")}


async def test_built_in_groups_are_registered_at_the_start(api):
    listed = (await api.get(SERVICES)).body["items"]

    assert {one["metadata"]["name"] for one in listed} == {f"{version}.{group}" for group, version in PRIORITIES}
    assert {one["metadata"]["labels"][LABEL] for one in listed} == {ON_START}
    assert {one["status"]["conditions"][0]["reason"] for one in listed} == {"Local"}
    row = (await api.get(f"{SERVICES}/v1.apps", accept=TABLE)).body["rows"][0]["cells"]
    assert row[:3] == ["v1.apps", "Local", "True"]
    core = (await api.get(f"{SERVICES}/v1.")).body
    assert core["spec"] == {"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1}


async def test_a_start_restores_what_it_manages_and_nothing_else(serve):
    store = MemoryStore()
    api = await serve(store)
    await api.delete(f"{SERVICES}/v1.batch")
    await api.patch(f"{SERVICES}/v1.apps", {"spec": {"versionPriority": 3}})
    unmanaged = {"metadata": {"labels": None}, "spec": {"versionPriority": 4}}
    await api.patch(f"{SERVICES}/v1.policy", unmanaged)
    old = {"group": "old.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    await api.made(SERVICES, {"metadata": {"name": "v1.old.example.com", "labels": {LABEL: ON_START}}, "spec": old})

    again = await serve(store)

    priorities = {
        one["metadata"]["name"]: one["spec"]["versionPriority"] for one in (await again.get(SERVICES)).body["items"]
    }
    assert (priorities["v1.batch"], priorities["v1.apps"], priorities["v1.policy"]) == (15, 15, 4)
    assert "v1.old.example.com" not in priorities


async def test_the_group_of_a_definition_is_registered_and_removed_with_it(api, definition):
    crd = await api.made(DEFINITIONS, definition())
    name = f"{crd['spec']['versions'][0]['name']}.{crd['spec']['group']}"

    made = (await answer_when(lambda: api.get(f"{SERVICES}/{name}"), lambda reply: reply.status == 200)).body

    assert made["metadata"]["labels"] == {LABEL: ALWAYS}
    assert (made["spec"]["groupPriorityMinimum"], made["spec"]["versionPriority"]) == (1000, 100)
    await api.delete(f"{SERVICES}/{name}")
    await answer_when(lambda: api.get(f"{SERVICES}/{name}"), lambda reply: reply.status == 200)

    await api.patch(f"{DEFINITIONS}/{crd['metadata']['name']}", {"metadata": {"finalizers": None}})
    await api.delete(f"{DEFINITIONS}/{crd['metadata']['name']}")

    await answer_when(lambda: api.get(f"{SERVICES}/{name}"), lambda reply: reply.status == 404)


def stored(service, **spec):
    return {**service, "spec": {**service["spec"], **spec}}


SPEC = {"group": "g.io", "versions": [{"name": "v1", "served": True}, {"name": "v2", "served": False}]}
WANTED = custom_services([msgspec.convert({"spec": SPEC}, Definition)])
OURS = WANTED["v1.g.io"]
FOREIGN = {"metadata": {"name": "v1.g.io"}, "spec": {"service": {}}}


@pytest.mark.parametrize(
    ("wanted", "present", "expected"),
    [
        pytest.param(WANTED, [], (["v1.g.io"], [], []), id="missing"),
        pytest.param(WANTED, [OURS], ([], [], []), id="present"),
        pytest.param(WANTED, [stored(OURS, versionPriority=1)], ([], ["v1.g.io"], []), id="changed by somebody"),
        pytest.param(WANTED, [FOREIGN], ([], [], []), id="somebody else's"),
        pytest.param({}, [OURS], ([], [], ["v1.g.io"]), id="no longer served"),
        pytest.param({}, [FOREIGN, *builtin_services(BUILTIN.all).values()], ([], [], []), id="others"),
    ],
)
def test_a_plan_touches_managed_services_only(wanted, present, expected):
    decided = plan(wanted, {one["metadata"]["name"]: one for one in present}, ALWAYS)

    assert (list(decided.create), list(decided.change), decided.remove) == expected
