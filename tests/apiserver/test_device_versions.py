"""resource.k8s.io in three versions over one store."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.kinds.builtin.resource import versions

GROUP = "/apis/resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")
EXACTLY = {"deviceClassName": "nics", "allocationMode": "ExactCount", "count": 1}


def claims(version):
    return f"{GROUP}/{version}/namespaces/default/resourceclaims"


def request(version, **wanted):
    return {"name": "nic", **wanted} if version == "v1beta1" else {"name": "nic", "exactly": wanted}


def claim(version, **wanted):
    return {"metadata": {"name": f"c-{version}"}, "spec": {"devices": {"requests": [request(version, **wanted)]}}}


def device(version, **what):
    return {"name": "eth0", "basic": what} if version == "v1beta1" else {"name": "eth0", **what}


def slice_(version, **what):
    spec = {"driver": "d.e", "nodeName": "n1", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}}
    return {"metadata": {"name": f"s-{version}"}, "spec": {**spec, "devices": [device(version, **what)]}}


@pytest.mark.parametrize("written", VERSIONS)
async def test_a_claim_is_defaulted_and_read_in_every_version(api, written):
    made = await api.made(claims(written), claim(written, deviceClassName="nics"))
    assert made["apiVersion"] == f"resource.k8s.io/{written}"

    for version in VERSIONS:
        seen = (await api.get(f"{claims(version)}/c-{written}")).body
        assert seen["apiVersion"] == f"resource.k8s.io/{version}"
        assert seen["spec"]["devices"]["requests"] == [request(version, **EXACTLY)]
        assert seen["metadata"]["uid"] == made["metadata"]["uid"]


@pytest.mark.parametrize("written", VERSIONS)
async def test_a_template_and_a_slice_are_read_in_every_version(api, written):
    templates = f"{GROUP}/{{}}/namespaces/default/resourceclaimtemplates"
    body = {"metadata": {"name": "t"}, "spec": {"spec": claim(written, deviceClassName="nics")["spec"]}}
    await api.made(templates.format(written), body)
    await api.made(f"{GROUP}/{written}/resourceslices", slice_(written, attributes={"mtu": {"int": 1500}}))

    for version in VERSIONS:
        template = (await api.get(f"{templates.format(version)}/t")).body
        assert template["spec"]["spec"]["devices"]["requests"] == [request(version, **EXACTLY)]
        seen = (await api.get(f"{GROUP}/{version}/resourceslices/s-{written}")).body
        assert seen["spec"]["devices"] == [device(version, attributes={"mtu": {"int": 1500}})]


async def test_a_refusal_speaks_the_words_of_v1(api):
    reply = await api.post(claims("v1beta1"), claim("v1beta1", allocationMode="All", count=2))

    assert reply.status == 422
    assert [cause["field"] for cause in reply.body["details"]["causes"]] == [
        "spec.devices.requests[0].exactly.deviceClassName",
        "spec.devices.requests[0].exactly.count",
    ]


async def test_a_patch_in_an_old_version_keeps_other_fields(api):
    await api.made(f"{GROUP}/v1/resourceslices", slice_("v1", attributes={"mtu": {"int": 1500}}))

    patch = {"metadata": {"labels": {"a": "b"}}}
    reply = await api.patch(f"{GROUP}/v1beta1/resourceslices/s-v1", patch)

    assert reply.status == 200
    seen = (await api.get(f"{GROUP}/v1/resourceslices/s-v1")).body
    assert seen["metadata"]["labels"] == {"a": "b"}
    assert seen["spec"]["devices"] == [device("v1", attributes={"mtu": {"int": 1500}})]


async def test_watchers_get_events_in_their_own_version(api):
    watching = await api.watch(claims("v1beta1"))
    await api.made(claims("v1"), claim("v1", deviceClassName="nics"))

    frame = await watching.next()

    assert frame["object"]["apiVersion"] == "resource.k8s.io/v1beta1"
    assert frame["object"]["spec"]["devices"]["requests"] == [request("v1beta1", **EXACTLY)]


async def test_slices_are_selected_by_node_and_driver_in_every_version(api):
    await api.made(f"{GROUP}/v1/resourceslices", slice_("v1"))
    other = slice_("v1beta2")
    other["spec"]["driver"] = "other"
    await api.made(f"{GROUP}/v1beta2/resourceslices", other)

    for version in VERSIONS:
        url = f"{GROUP}/{version}/resourceslices?fieldSelector=spec.nodeName=n1,spec.driver=d.e"
        assert (await api.get(url)).names == ["s-v1"]


async def test_taint_rules_are_dated_counted_and_have_a_status(api):
    url = f"{GROUP}/v1beta2/devicetaintrules"
    made = await api.made(url, {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoExecute"}}})
    assert made["metadata"]["generation"] == 1
    assert made["spec"]["taint"]["timeAdded"]

    condition = {"type": "T", "status": "True", "reason": "R", "lastTransitionTime": "2027-01-01T00:00:00Z"}
    reply = await api.patch(f"{url}/r/status", {"status": {"conditions": [condition]}})

    assert (reply.status, reply.body["metadata"]["generation"]) == (200, 1)
    assert reply.body["status"]["conditions"][0]["type"] == "T"


json = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), st.lists, max_leaves=4)
wanted = st.fixed_dictionaries(
    {"deviceClassName": st.text(max_size=3)},
    optional={"count": st.integers(), "selectors": json, "adminAccess": st.booleans(), "tolerations": json},
)
requests = st.one_of(
    st.fixed_dictionaries({"name": st.text(max_size=3), "exactly": wanted}),
    st.fixed_dictionaries({"name": st.text(max_size=3), "firstAvailable": st.lists(wanted, min_size=1, max_size=2)}),
)
devices = st.fixed_dictionaries({"name": st.text(max_size=3)}, optional={"attributes": json, "taints": json})
objects = st.one_of(
    st.tuples(st.just("ResourceClaim"), st.builds(lambda r: {"devices": {"requests": r}}, st.lists(requests))),
    st.tuples(
        st.just("ResourceClaimTemplate"),
        st.builds(lambda r: {"metadata": {}, "spec": {"devices": {"requests": r}}}, st.lists(requests)),
    ),
    st.tuples(st.just("ResourceSlice"), st.builds(lambda d: {"driver": "d", "devices": d}, st.lists(devices))),
    st.tuples(st.just("DeviceClass"), st.just({"selectors": []})),
)


@settings(max_examples=200)
@given(given_=objects)
def test_every_version_round_trips_stored_objects(given_):
    kind, spec = given_
    stored = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    for conversion in versions.conversions(kind).values():
        assert conversion.to_stored(conversion.from_stored(stored)) == stored


async def test_fields_that_kubelets_ignore_are_unknown_fields(api):
    """skipNodeOperations: a driver that counted on it would be asked all the same, so nobody is let believe in it."""
    spec = {**slice_("v1")["spec"], "skipNodeOperations": ["*"]}
    reply = await api.post(f"{GROUP}/v1/resourceslices?fieldValidation=Strict", {**slice_("v1"), "spec": spec})
    assert reply.status == 400
    assert 'unknown field "spec.skipNodeOperations"' in reply.message
    made = await api.made(claims("v1"), claim("v1", deviceClassName="nics"))
    result = {"request": "nic", "driver": "d.e", "pool": "n1", "device": "eth0", "skipNodeOperations": ["*"]}
    made["status"] = {"allocation": {"devices": {"results": [result]}}}
    path = f"{claims('v1')}/{made['metadata']['name']}/status"
    reply = await api.put(f"{path}?fieldValidation=Strict", made)
    assert reply.status == 400
    assert 'unknown field "status.allocation.devices.results[0].skipNodeOperations"' in reply.message
    reply = await api.put(path, made)
    assert "skipNodeOperations" not in str(reply.body["status"])
    assert "skipNodeOperations" in str(reply.warnings)
