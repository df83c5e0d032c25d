"""Services have addresses of one family or of both, as they ask and as the cluster is configured."""

import ipaddress

import pytest

SERVICES = "/api/v1/namespaces/default/services"
V4, V6 = ipaddress.ip_network("10.96.0.0/16"), ipaddress.ip_network("fd00:96::/112")


def service(name="web", **spec):
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}, **spec}}


@pytest.fixture
async def dual(serve):
    """A server with ranges of both families."""
    return await serve(service_networks=(V4, V6))


def families_of(addresses):
    return [f"IPv{ipaddress.ip_address(address).version}" for address in addresses]


# --- one family -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(
            {"ipFamilyPolicy": "RequireDualStack"},
            'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": '
            "this cluster is not configured for dual-stack services",
            id="both are required",
        ),
        pytest.param(
            {"ipFamilies": ["IPv6"]},
            'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster',
            id="the other is asked for",
        ),
        pytest.param(
            {"clusterIP": "fd00:96::7"},
            'spec.clusterIPs[0]: Invalid value: ["fd00:96::7"]: IPv6 is not configured on this cluster',
            id="an address of the other",
        ),
        pytest.param(
            {"ipFamilies": ["IPv4", "IPv6"]},
            'spec.ipFamilyPolicy: Invalid value: "SingleStack": '
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
            id="two without a policy",
        ),
    ],
)
async def test_a_cluster_of_one_family_refuses_the_other(api, spec, words):
    reply = await api.post(SERVICES, service(**spec))

    assert (reply.status, reply.message) == (422, f'Service "web" is invalid: {words}')


async def test_a_preference_for_both_is_satisfied_by_one(api):
    spec = (await api.made(SERVICES, service(ipFamilyPolicy="PreferDualStack")))["spec"]

    assert (spec["ipFamilies"], families_of(spec["clusterIPs"])) == (["IPv4"], ["IPv4"])


async def test_a_headless_service_without_selector_has_both_families_anywhere(api):
    made = await api.made(
        SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], "clusterIP": "None"}}
    )

    assert made["spec"]["ipFamilyPolicy"] == "RequireDualStack"
    assert made["spec"]["ipFamilies"] == ["IPv4", "IPv6"]


# --- both families ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "policy", "families"),
    [
        pytest.param({}, "SingleStack", ["IPv4"], id="nothing is asked for"),
        pytest.param({"ipFamilies": ["IPv6"]}, "SingleStack", ["IPv6"], id="one family"),
        pytest.param({"ipFamilyPolicy": "PreferDualStack"}, "PreferDualStack", ["IPv4", "IPv6"], id="preferred"),
        pytest.param({"ipFamilyPolicy": "RequireDualStack"}, "RequireDualStack", ["IPv4", "IPv6"], id="required"),
        pytest.param(
            {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]},
            "RequireDualStack",
            ["IPv6", "IPv4"],
            id="IPv6 first",
        ),
        pytest.param({"clusterIP": "fd00:96::7"}, "SingleStack", ["IPv6"], id="by its address"),
        pytest.param(
            {"ipFamilyPolicy": "PreferDualStack", "clusterIP": "fd00:96::7", "clusterIPs": ["fd00:96::7", "10.96.3.4"]},
            "PreferDualStack",
            ["IPv6", "IPv4"],
            id="by both addresses",
        ),
    ],
)
async def test_a_service_gets_an_address_of_each_of_its_families(dual, spec, policy, families):
    made = (await dual.made(SERVICES, service(**spec)))["spec"]

    assert (made["ipFamilyPolicy"], made["ipFamilies"]) == (policy, families)
    assert families_of(made["clusterIPs"]) == families
    assert made["clusterIP"] == made["clusterIPs"][0]
    assert made["clusterIPs"][: len(spec.get("clusterIPs", []))] == spec.get("clusterIPs", [])


async def test_the_default_range_has_both_networks(dual):
    cidr = (await dual.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes")).body

    assert cidr["spec"]["cidrs"] == [str(V4), str(V6)]


async def test_a_service_becomes_dual_stack_and_single_stack_again(dual):
    made = await dual.made(SERVICES, service())
    first = made["spec"]["clusterIP"]

    up = (await dual.patch(f"{SERVICES}/web", {"spec": {"ipFamilyPolicy": "RequireDualStack"}})).body["spec"]
    assert (up["clusterIPs"][0], up["ipFamilies"]) == (first, ["IPv4", "IPv6"])
    second = up["clusterIPs"][1]
    assert (await dual.get(f"/apis/networking.k8s.io/v1/ipaddresses/{second}")).status == 200

    down = (await dual.patch(f"{SERVICES}/web", {"spec": {"ipFamilyPolicy": "SingleStack"}})).body["spec"]
    assert (down["clusterIPs"], down["ipFamilies"]) == ([first], ["IPv4"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            {"ipFamilies": ["IPv4"]}, "must be 'SingleStack' to release the secondary IP family", id="a family"
        ),
        pytest.param(
            {"clusterIPs": ["10.96.3.4"]}, "must be 'SingleStack' to release the secondary cluster IP", id="an address"
        ),
        pytest.param({"ipFamilies": ["IPv6", "IPv4"]}, "expected an IPv6 value", id="another order"),
    ],
)
async def test_a_second_family_goes_only_when_the_policy_says_so(dual, change, words):
    addresses = ["10.96.3.4", "fd00:96::7"]
    await dual.made(SERVICES, service(ipFamilyPolicy="RequireDualStack", clusterIP=addresses[0], clusterIPs=addresses))

    reply = await dual.patch(f"{SERVICES}/web", {"spec": change})

    assert reply.status == 422
    assert words in reply.message


async def test_an_update_that_names_no_families_keeps_them(dual):
    made = await dual.made(SERVICES, service(ipFamilyPolicy="RequireDualStack"))

    reply = await dual.put(f"{SERVICES}/web", service(sessionAffinity="ClientIP"))

    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        assert reply.body["spec"][field] == made["spec"][field]
