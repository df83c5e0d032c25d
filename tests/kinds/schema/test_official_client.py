"""The official Python client wants every required member to be there; normal form brings those that Go shows."""

from typing import Any

import kubernetes.client
import pytest

from podwire.kinds.schema.types import Schemas
from podwire.kinds.shape import Report
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind

SCHEMAS = Schemas()

_SELECTED = {"spec": {"selector": {}}}
_MUST_BE_GIVEN: dict[str, dict[str, Any]] = {
    "ControllerRevision": {"data": {}},
    "DaemonSet": _SELECTED,
    "Deployment": _SELECTED,
    "IPAddress": {"spec": {"parentRef": {"resource": "r", "name": "n"}}},
    "ReplicaSet": _SELECTED,
    "StatefulSet": _SELECTED,
    "TokenReview": {"spec": {"token": "t"}},
    "ValidatingAdmissionPolicyBinding": {"spec": {"policyName": "p", "validationActions": ["Deny"]}},
    "events.k8s.io/v1 Event": {"eventTime": "2026-11-15T03:44:00.000000Z"},
}
"""Fields that no server sets; validation refuses objects without them."""


def model(kind: Kind) -> Any:
    plain = f"{kind.version.capitalize()}{kind.kind}"
    group = kind.group.partition(".")[0].capitalize() or "Core"
    return getattr(kubernetes.client, plain, None) or getattr(kubernetes.client, f"{group}{plain}")


@pytest.mark.parametrize("kind", BUILTIN.all, ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_the_official_client_reads_the_normal_form_of_every_kind(kind):
    shape = SCHEMAS.shape(kind.api_version, kind.kind)
    assert shape is not None
    given = _MUST_BE_GIVEN.get(f"{kind.api_version} {kind.kind}", _MUST_BE_GIVEN.get(kind.kind, {}))
    body = shape.decode({"metadata": {"name": "x"}, **given}, "", Report())
    assert model(kind).from_dict(body).metadata.name == "x"
