"""Protobuf bodies that were damaged on their way: what is stored is valid, and the rest is refused by name."""

import pytest

from podwire.objects import names
from podwire.protocols.k8sapi import protobuf
from podwire.protocols.k8sapi.builtin import BUILTIN
from tests.apiserver.abuse.support import check_refusal
from tests.protocols.k8sapi.damage import BODIES, flipped, truncated

PROTOBUF = "application/vnd.kubernetes.protobuf"
COLLECTIONS = {kind.resource: kind.target(namespace="default").path() for kind in BUILTIN.all}


def damaged(resource):
    yield from flipped(BODIES[resource])
    yield from truncated(BODIES[resource])


@pytest.mark.parametrize("resource", BODIES)
def test_a_damaged_body_is_refused_or_creates_a_valid_object_under_the_name_in_it(shared_house, resource):
    created = 0
    for data in damaged(resource):
        revision = shared_house.store.revision
        reply = shared_house.ask("POST", COLLECTIONS[resource], data, media=PROTOBUF)
        if reply.status != 201:
            check_refusal(reply)
            assert 400 <= reply.status < 500, (data, reply.raw)
            assert shared_house.store.revision == revision, (data, reply.raw)
            continue
        created += 1
        name = reply.body["metadata"]["name"]
        assert not names.dns_subdomain(name), (data, name)
        given = protobuf.decode(data)["metadata"]
        assert name == given["name"] if "name" in given else name.startswith(given["generateName"]), (data, name)
        assert shared_house.ask("GET", f"{COLLECTIONS[resource]}/{name}").body["metadata"]["name"] == name
    assert created  # some damage cannot be distinguished from another object


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lambda data: data[:-7], "longer than the message that it is in", id="cut off"),
        pytest.param(lambda data: data + b"\x0c", "wiretype end group for non-group", id="a byte behind the end"),
        pytest.param(
            lambda data: data.replace(b"\n\x04lock", b"\x08\x04lock"),
            "proto: ObjectMeta: wrong wireType = 0 for field name",
            id="the name as a number",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong_with_the_message(shared_house, damage, message):
    reply = shared_house.refused("POST", COLLECTIONS["leases"], damage(BODIES["leases"]), media=PROTOBUF)
    assert reply.status == 400
    assert message in reply.message
