"""Services get addresses and node ports, keep them, and give them back."""

import asyncio
import ipaddress

import pytest

from podwire.apiserver.admission import service_allocations
from tests.apiserver.support import answer_when

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
NETWORK = ipaddress.ip_network("10.96.0.0/16")


def service(name="web", port=80, **spec):
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": port}], **spec}}


@pytest.fixture
async def tiny(serve):
    """A server with space for six services, of which its own is one."""
    return await serve(service_networks=(ipaddress.ip_network("10.0.0.0/29"),))


async def held(api):
    """The addresses and ports that are taken."""
    return {
        item.key.rpartition("/")[2]
        for prefix in (service_allocations.ADDRESSES, service_allocations.NODE_PORTS)
        for item in (await api.store.list(prefix)).items
    }


# --- addresses --------------------------------------------------------------------------------------------------------


async def test_a_service_gets_an_address_of_the_network(api):
    made = await api.made(SERVICES, service())

    spec = made["spec"]
    assert ipaddress.ip_address(spec["clusterIP"]) in NETWORK
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")


async def test_an_address_that_is_taken_is_an_object_that_names_its_service(api):
    made = await api.made(SERVICES, service())

    reply = await api.get(f"{ADDRESSES}/{made['spec']['clusterIP']}")

    parent = {"resource": "services", "namespace": "default", "name": "web"}
    assert {**reply.body["spec"]["parentRef"], "group": ""} == {**parent, "group": ""}
    assert reply.body["metadata"]["uid"] != made["metadata"]["uid"]


async def test_the_servers_own_service_has_the_first_address(api):
    assert (await api.get(f"{SERVICES}/kubernetes")).body["spec"]["clusterIP"] == "10.96.0.1"


async def test_an_address_can_be_asked_for(api):
    made = await api.made(SERVICES, service(clusterIP="10.96.0.10"))

    assert made["spec"]["clusterIPs"] == ["10.96.0.10"]


async def test_an_address_that_is_taken_is_refused(api):
    await api.made(SERVICES, service("one", clusterIP="10.96.0.10"))

    reply = await api.post(SERVICES, service("two", clusterIP="10.96.0.10"))

    assert reply.status == 422
    assert reply.message == (
        'Service "two" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.10"]: '
        "failed to allocate IP 10.96.0.10: provided IP is already allocated"
    )


async def test_an_address_from_elsewhere_is_refused(api):
    reply = await api.post(SERVICES, service(clusterIP="192.168.0.1"))

    assert reply.status == 422
    assert "the provided IP is not in the valid range 10.96.0.0/16" in reply.message


async def test_no_address_is_held_by_a_service_that_was_refused(api):
    before = await held(api)

    replies = [
        await api.post(SERVICES, service(clusterIP="10.96.0.10", sessionAffinity="Sometimes")),
        await api.post(SERVICES, service(clusterIP="10.96.0.11", type="NodePort", port=99999)),
        await api.post(SERVICES, service("kubernetes", clusterIP="10.96.0.12")),
    ]

    assert [reply.status for reply in replies] == [422, 422, 409]
    assert await held(api) == before


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"clusterIP": "None"}, id="headless"),
        pytest.param({"type": "ExternalName", "externalName": "example.com"}, id="an external name"),
    ],
)
async def test_some_services_have_no_address(api, spec):
    before = await held(api)

    made = await api.made(SERVICES, service(**spec))

    assert made["spec"].get("clusterIP") == spec.get("clusterIP")
    assert await held(api) == before


async def test_when_all_addresses_are_taken_the_next_service_is_refused(tiny):
    for number in range(5):
        await tiny.made(SERVICES, service(f"s{number}"))

    reply = await tiny.post(SERVICES, service("one-too-many"))

    assert reply.status == 500
    assert "range 10.0.0.0/29 is full" in reply.message
    assert len(await held(tiny)) == 6


async def test_racing_services_all_get_addresses_of_their_own(serve, racing):
    api = await serve(type(racing.store)(), service_networks=(ipaddress.ip_network("10.0.0.0/26"),))

    replies = await asyncio.gather(
        *(api.post(SERVICES, service(f"s{number}", type="NodePort")) for number in range(30))
    )

    assert {reply.status for reply in replies} == {201}
    assert len({reply.body["spec"]["clusterIP"] for reply in replies}) == 30
    assert len({reply.body["spec"]["ports"][0]["nodePort"] for reply in replies}) == 30


async def test_of_services_that_race_for_one_address_one_gets_it(racing):
    replies = await asyncio.gather(
        *(racing.post(SERVICES, service(f"s{number}", clusterIP="10.96.0.10")) for number in range(10))
    )

    assert sorted(reply.status for reply in replies) == [201] + [422] * 9


async def test_of_racing_namesakes_one_is_made_and_one_address_is_taken(racing):
    before = await held(racing)

    replies = await asyncio.gather(*(racing.post(SERVICES, service("web")) for _ in range(10)))

    assert sorted(reply.status for reply in replies) == [201] + [409] * 9
    made = next(reply for reply in replies if reply.status == 201)
    assert await held(racing) - before == {made.body["spec"]["clusterIP"]}


# --- given back -------------------------------------------------------------------------------------------------------


async def test_a_deleted_service_gives_everything_back(api):
    before = await held(api)
    await api.made(SERVICES, service(type="NodePort", clusterIP="10.96.0.10"))
    assert "10.96.0.10" in await held(api)

    await api.delete(f"{SERVICES}/web")

    await answer_when(lambda: held(api), lambda now: now == before)


@pytest.mark.parametrize("name", ["web", "other"], ids=["the same name", "another name"])
async def test_an_address_just_released_can_be_allocated_at_once(api, name):
    await api.made(SERVICES, service("web", clusterIP="10.96.0.10"))
    await api.delete(f"{SERVICES}/web")

    made = await api.made(SERVICES, service(name, clusterIP="10.96.0.10"))

    await asyncio.sleep(0.02)
    assert made["spec"]["clusterIP"] == "10.96.0.10"
    assert "10.96.0.10" in await held(api)
    assert (await api.post(SERVICES, service("late", clusterIP="10.96.0.10"))).status == 422


async def test_a_service_that_becomes_an_external_name_gives_its_address_back(api):
    await api.made(SERVICES, service(clusterIP="10.96.0.10"))

    reply = await api.patch(f"{SERVICES}/web", {"spec": {"type": "ExternalName", "externalName": "example.com"}})

    assert reply.status == 200
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & {*reply.body["spec"]}
    await answer_when(lambda: held(api), lambda now: "10.96.0.10" not in now)


async def test_an_external_name_that_becomes_a_service_gets_an_address(api):
    await api.made(SERVICES, service(type="ExternalName", externalName="example.com"))

    reply = await api.patch(f"{SERVICES}/web", {"spec": {"type": "ClusterIP", "externalName": None}})

    assert reply.status == 200
    assert reply.body["spec"]["clusterIP"] in await held(api)


async def test_a_service_that_is_kept_by_a_finalizer_keeps_its_address(api):
    given = service(clusterIP="10.96.0.10")
    given["metadata"]["finalizers"] = ["example.com/a"]
    await api.made(SERVICES, given)

    await api.delete(f"{SERVICES}/web")
    await asyncio.sleep(0.02)

    assert "10.96.0.10" in await held(api)


# --- updates ----------------------------------------------------------------------------------------------------------


async def test_a_service_that_is_replaced_keeps_its_address_and_ports(api):
    made = await api.made(SERVICES, service(type="NodePort"))

    reply = await api.put(f"{SERVICES}/web", service(type="NodePort", sessionAffinity="ClientIP"))

    assert reply.body["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert reply.body["spec"]["ports"] == made["spec"]["ports"]
    assert reply.body["spec"]["sessionAffinity"] == "ClientIP"


async def test_an_address_does_not_change(api):
    await api.made(SERVICES, service())

    reply = await api.patch(f"{SERVICES}/web", {"spec": {"clusterIP": "10.96.0.99", "clusterIPs": ["10.96.0.99"]}})

    assert reply.status == 422
    assert "may not change once set" in reply.message
    assert "10.96.0.99" not in await held(api)


async def test_a_service_that_needs_node_ports_no_more_loses_them(api):
    made = await api.made(SERVICES, service(type="NodePort"))
    number = str(made["spec"]["ports"][0]["nodePort"])
    assert number in await held(api)

    reply = await api.patch(f"{SERVICES}/web", {"spec": {"type": "ClusterIP"}})

    assert reply.status == 200
    assert "nodePort" not in reply.body["spec"]["ports"][0]
    assert "externalTrafficPolicy" not in reply.body["spec"]
    assert reply.body["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    await answer_when(lambda: held(api), lambda now: number not in now)


# --- node ports -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
async def test_a_service_for_the_outside_gets_node_ports(api, kind):
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 443}]

    made = await api.made(SERVICES, service(type=kind, ports=ports))

    numbers = [port["nodePort"] for port in made["spec"]["ports"]]
    assert len(set(numbers)) == 2
    assert all(30000 <= number <= 32767 for number in numbers)


async def test_a_node_port_can_be_asked_for_and_is_refused_to_the_next(api):
    made = await api.made(SERVICES, service("one", type="NodePort", ports=[{"port": 80, "nodePort": 30080}]))

    reply = await api.post(SERVICES, service("two", type="NodePort", ports=[{"port": 80, "nodePort": 30080}]))

    assert made["spec"]["ports"][0]["nodePort"] == 30080
    assert reply.status == 422
    assert reply.message == (
        'Service "two" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated'
    )


async def test_a_node_port_out_of_the_range_is_refused(api):
    reply = await api.post(SERVICES, service(type="NodePort", ports=[{"port": 80, "nodePort": 80}]))

    assert reply.status == 422
    assert "The range of valid ports is 30000-32767" in reply.message


async def test_of_services_that_race_for_one_node_port_one_gets_it(racing):
    ports = [{"port": 80, "nodePort": 30080}]

    replies = await asyncio.gather(
        *(racing.post(SERVICES, service(f"s{number}", type="NodePort", ports=ports)) for number in range(10))
    )

    assert sorted(reply.status for reply in replies) == [201] + [422] * 9


@pytest.mark.parametrize("given", [{}, {"nodePort": 30053}], ids=["drawn", "asked for"])
async def test_one_port_has_one_node_port_for_all_its_protocols(api, given):
    ports = [{"name": "t", "port": 53, **given}, {"name": "u", "port": 53, "protocol": "UDP", **given}]

    made = await api.made(SERVICES, service(type="NodePort", ports=ports))

    first, second = (port["nodePort"] for port in made["spec"]["ports"])
    assert first == second


async def test_a_new_port_of_a_service_gets_a_node_port_and_the_old_one_keeps_its_own(api):
    made = await api.made(SERVICES, service(type="NodePort", ports=[{"name": "a", "port": 80}]))
    ports = [{"name": "b", "port": 81}, {"name": "a", "port": 80}]

    reply = await api.put(f"{SERVICES}/web", service(type="NodePort", ports=ports))

    numbers = {port["name"]: port["nodePort"] for port in reply.body["spec"]["ports"]}
    assert numbers["a"] == made["spec"]["ports"][0]["nodePort"]
    assert numbers["b"] != numbers["a"]


async def test_a_load_balancer_may_do_without_node_ports(api):
    made = await api.made(SERVICES, service(type="LoadBalancer", allocateLoadBalancerNodePorts=False))

    assert "nodePort" not in made["spec"]["ports"][0]


async def test_a_local_load_balancer_gets_a_port_for_its_health(api):
    made = await api.made(SERVICES, service(type="LoadBalancer", externalTrafficPolicy="Local"))

    number = made["spec"]["healthCheckNodePort"]
    assert number != made["spec"]["ports"][0]["nodePort"]
    assert str(number) in await held(api)


# --- dry run ----------------------------------------------------------------------------------------------------------


async def test_a_dry_run_shows_an_address_and_takes_none(api):
    before, revision = await held(api), api.store.revision

    reply = await api.post(f"{SERVICES}?dryRun=All", service(type="NodePort"))

    assert reply.status == 201
    assert ipaddress.ip_address(reply.body["spec"]["clusterIP"]) in NETWORK
    assert reply.body["spec"]["ports"][0]["nodePort"] in range(30000, 32768)
    assert await held(api) == before
    assert api.store.revision == revision
