"""Damaged protobuf bodies: each is refused, or decodes to the object that upstream's decoder finds in it."""

import pytest

from podwire.protocols.k8sapi import protobuf
from podwire.protocols.k8sapi.codec import BadBody
from tests.protocols.k8sapi.damage import BODIES, flipped, truncated
from tests.protocols.k8sapi.protobuf_reference import Refused, reference


@pytest.mark.parametrize("kind", BODIES)
def test_an_undamaged_body_decodes_to_what_the_reference_finds(kind):
    assert protobuf.decode(BODIES[kind]) == reference(BODIES[kind])


@pytest.mark.parametrize("damage", [flipped, truncated])
@pytest.mark.parametrize("kind", BODIES)
def test_a_damaged_body_is_refused_or_decodes_as_upstream_decodes_it(kind, damage):
    accepted = 0
    for data in damage(BODIES[kind]):
        try:
            obj = protobuf.decode(data)
        except BadBody:
            continue
        accepted += 1
        try:
            assert obj == reference(data), data
        except Refused as refused:
            pytest.fail(f"upstream refuses {data!r}: {refused}")
    assert accepted  # a flipped bit inside a string leaves a valid message
