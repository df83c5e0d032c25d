"""Events of a whole kubelet, as a real API server stores them."""

from podwire.protocols.k8sapi.client_side.events import CORE_V1


async def reported(world, reason):
    return await world.until(lambda each: each and each["reason"] == reason, kind=CORE_V1.kind)


async def test_an_event_of_a_pod_has_all_fields(world):
    pod = await world.make()
    event = await reported(world, "Started")
    assert int(event["involvedObject"].pop("resourceVersion")) >= int(pod["metadata"]["resourceVersion"])
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "namespace": "default",
        "uid": pod["metadata"]["uid"],
        "fieldPath": "spec.containers{c}",
    }
    name, _, stamp = event["metadata"]["name"].rpartition(".")
    assert (name, int(stamp, 16) > 0) == ("p", True)
    assert event["source"] == {"component": "kubelet", "host": "n"}
    assert (event["reportingComponent"], event["reportingInstance"]) == ("kubelet", "n")
    assert (event["type"], event["count"]) == ("Normal", 1)
    assert event["firstTimestamp"] == event["lastTimestamp"]


async def test_an_event_about_the_node_lives_in_the_default_namespace(world):
    event = await reported(world, "Starting")
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}
