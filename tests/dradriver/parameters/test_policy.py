"""The admission policy on a real API server, against the same tables as the driver itself."""

import json
from random import Random

import pytest

from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters import field_checks
from podwire.dradriver.parameters.policy import LONGEST_LIST, NAME, policy
from podwire.dradriver.parameters.reader import Source, read
from podwire.dradriver.parameters.schema import FIELDS, LOCKS
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async

GROUP = "resource.k8s.io/v1"
STRANGE = (
    *(None, True, False, 0, 1, -1, 254, 255, 1500, 2**31, 2**63 - 1, 1.5, 1.0, "", "x", "eth0", "é", "a" * 70, "tso"),
    *(
        "10.9.0.2/24",
        "10.9.0.0/24",
        "10.9.0.1",
        "::1",
        "fe80::1",
        "fe80::/64",
        "224.0.0.1/4",
        "0.0.0.0/0",
        "::/0",
        "/8",
    ),
    *("02:00:00:00:00:01", "01:00:00:00:00:01", "macvlan", "ipvlan", "l3", "link", [], [None], ["10.9.0.2/24"], {}),
    *({"name": None}, {"name": "red"}, {"x": 1}, {"mtu": 1279, "addresses": ["2001:db8::2/64"]}, [{"priority": 1}]),
)
REQUESTS = [{"name": "nic", "exactly": {"deviceClassName": "net.example"}}]


@pytest.fixture
async def api(api_server, admin_http):
    """A server on which the policy is in force."""
    client = Client(admin_http)
    for entry in policy():
        await client.create(entry)
    keeper = api_server.assembled.policies
    await eventually_async(lambda: any(item.policy.name == NAME for item in keeper.active.bound))
    return client


def opaque(config):
    return {key: value for key, value in config.items() if key in ("opaque", "requests") and value}


def claim(configs, kind="ResourceClaim", **meta):
    spec = {"devices": {"requests": REQUESTS, "config": [opaque(config) for config in configs]}}
    found = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "c", "namespace": "default", **meta}, "spec": found}


def class_(configs):
    return {
        "apiVersion": GROUP,
        "kind": "DeviceClass",
        "metadata": {"name": "net.example"},
        "spec": {"config": [opaque(config) for config in configs]},
    }


async def complaint(api, object_):
    """The server's error about an object; empty when it would accept it."""
    try:
        await api.create(object_, dry_run=True)
    except ApiError as error:
        return str(error)
    return ""


async def is_fine(api, object_):
    return not await complaint(api, object_)


def objects(case, said):
    """Objects written to the API server of a case, each with the paths of its fields."""
    if "class" in case:
        yield class_([said(case["class"])]), "spec.config[0]", case.get("blames") == "class"
    if "says" in case:
        yield claim([said(case["says"])]), "spec.devices.config[0]", case.get("blames") != "class"


async def test_early_cases_are_refused_with_the_drivers_messages(api, cases, said, decide_case):
    unlike = {}
    for case in cases["cases.yaml"]:
        with pytest.raises(Refused) as refused:
            decide_case(case)
        for object_, place, blamed in objects(case, said):
            result = await complaint(api, object_)
            early = blamed and case.get("early", False)
            if not early:
                expected = not result
            else:
                begins = f"{place}.opaque.parameters.{case['field']}: "
                reason = result.partition(begins)[2].partition("; spec.")[0]
                expected = NAME in result and bool(reason) and (early == "loosely" or reason in refused.value.reason)
            if not expected:
                unlike[case["id"]] = (result, refused.value.reason)
    assert unlike == {}


async def test_valid_parameters_are_admitted(api, cases, said):
    document = {
        case["id"]: document
        for case in cases["accepted.yaml"]
        for object_, _, _ in objects(case, said)
        if (document := await complaint(api, object_))
    }
    assert document == {}


def mutated(value, random):
    """The same with something else in one place."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        return {**value, key: mutated(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        return [*value[:place], mutated(value[place], random), *value[place + 1 :]]
    return random.choice(STRANGE)


def refuses(said, says):
    """Whether the driver would, whatever the device is."""
    try:
        found = read(Source(where="", class_name="", parameters=said(says)["opaque"]["parameters"]))
        field_checks.check_fields(found.said, str)
    except Refused:
        return True
    return False


async def test_driver_refuses_all_that_the_policy_refuses(api, cases, said):
    random, wrong, refused = Random(7), [], 0
    says = [case["says"] for name in cases for case in cases[name] if "says" in case]
    for say in says * 2:
        other = mutated(mutated(say, random), random)
        if not isinstance(other, dict):
            continue
        result = await complaint(api, claim([said(other)]))
        refused += bool(result)
        if result and (not refuses(said, other) or "resulted in error" in result):
            wrong.append((other, result))
    assert wrong == []
    assert refused > len(says) / 2


async def test_templates_are_validated_and_errors_have_the_path_of_the_config(api, said):
    fine, wrong = said({}), said({"interface": {"mtu": 1}, "routes": [{}]})
    result = await complaint(api, claim([fine, wrong, wrong], "ResourceClaimTemplate"))
    for place in (1, 2):
        at = f"spec.spec.devices.config[{place}].opaque.parameters"
        assert f"{at}.interface.mtu: must be from 68 to 65535" in result
    assert "config[0]" not in result
    only_routes = said({"routes": [{}, {"destination": "10.0.0.0/8", "scope": "link"}, {"metric": "x"}]})
    result = await complaint(api, claim([only_routes], "ResourceClaimTemplate"))
    at = "spec.spec.devices.config[0].opaque.parameters"
    assert f"{at}.routes[0].destination: is required; {at}.routes[2].destination: is required" in result
    assert f"{at}.routes[2].metric: must be a whole number" in result


async def test_parameters_of_other_drivers_are_admitted(api, said):
    other = said({"interface": "whatever"}, driver="gpu.example.com")
    assert await complaint(api, claim([other])) == ""
    both = await complaint(api, claim([other, said({"interface": "whatever"})]))
    assert "spec.devices.config[1].opaque.parameters.interface: must be an object" in both


async def test_metadata_of_older_invalid_objects_can_be_changed(api, said):
    wrong = class_([said({"interface": {"mtu": 1}})])
    kind = api.kind_of(policy()[1])
    [_, binding] = policy()
    await api.delete(kind, NAME)
    await eventually_async(lambda: is_fine(api, wrong))
    made = await api.create(wrong)
    await api.create(binding)
    await eventually_async(lambda: complaint(api, {**wrong, "metadata": {"name": "other"}}))
    made["metadata"]["labels"] = {"a": "b"}
    changed = await api.replace(made)
    assert changed["metadata"]["labels"] == {"a": "b"}
    changed["spec"]["config"] *= 2
    with pytest.raises(ApiError, match="must be from 68"):
        await api.replace(changed)


async def test_the_longest_lists_are_not_too_much(api, said, decide):
    says = {
        "interface": {"addresses": [f"10.9.0.{i}/24" for i in range(1, 17)]},
        "routes": [{"destination": f"10.{i}.0.0/16", "gateway": "10.9.0.99", "source": "10.9.0.7"} for i in range(64)],
        "rules": [{"priority": i + 1, "source": f"10.9.{i}.0/24", "table": 254} for i in range(32)],
    }
    assert len(decide([said(says)]).routes) == 64
    assert await complaint(api, claim([said(says)])) == ""
    last = {**says, "rules": [*says["rules"][:31], {"priority": 99, "source": "10.9.9.1/24", "table": 254}]}
    assert "rules[31].source: has bits beyond its prefix" in await complaint(api, claim([said(last)]))


async def test_duplicate_entries_are_refused_by_name(admin_http, said):
    text = json.dumps(claim([said({"interface": {"mtu": 1400}})])).replace('"mtu": 1400', '"mtu": 1400, "mtu": 9000')
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    query = [("fieldValidation", "Strict")]  # what kubectl asks for
    answer = await admin_http.request("POST", path, query=query, body=text.encode())
    assert answer.status == 400
    assert b'duplicate field \\"spec.devices.config[0].opaque.parameters.interface.mtu\\"' in answer.body


async def test_claims_from_a_template_are_not_validated_again(api, said):
    wrong = [said({"interface": {"mtu": 1}})]
    assert await complaint(api, claim(wrong))
    assert await complaint(api, claim(wrong, annotations={"resource.kubernetes.io/pod-claim-name": "nic"})) == ""


def test_every_list_can_be_counted_through():
    mosts = [form.most for form in (*FIELDS.values(), LOCKS) if hasattr(form, "most")]
    assert mosts
    assert max(mosts) <= LONGEST_LIST
