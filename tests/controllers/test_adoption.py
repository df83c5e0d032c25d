"""Ownership of objects: those that a controller owns, adopts and releases."""

import pytest

from podwire.controllers.adoption import claim
from podwire.controllers.kinds import PODS, builtin
from podwire.controllers.metadata import Metadata, Owner, PartialObject

SETS = builtin("apps/v1", "ReplicaSet")


def owner(*, deleting=False):
    return PartialObject(SETS, Metadata(name="web", uid="owner", deletion_timestamp="now" if deleting else None))


def pod(uid, *, by=None, app="web", deleting=False):
    owners = (Owner(uid=by, controller=True),) if by else ()
    metadata = Metadata(
        uid=uid, labels={"app": app}, owner_references=owners, deletion_timestamp="now" if deleting else None
    )
    return PartialObject(PODS, metadata)


@pytest.mark.parametrize(
    ("candidate", "of_deleting", "expected"),
    [
        pytest.param(pod("a", by="owner"), False, ("a", "", ""), id="owned and matching"),
        pytest.param(pod("a", by="owner", deleting=True), False, ("a", "", ""), id="owned and terminating"),
        pytest.param(pod("a", by="owner", app="x"), False, ("", "", "a"), id="owned, labels changed"),
        pytest.param(pod("a"), False, ("", "a", ""), id="orphan"),
        pytest.param(pod("a", deleting=True), False, ("", "", ""), id="terminating orphan"),
        pytest.param(pod("a", app="x"), False, ("", "", ""), id="orphan with other labels"),
        pytest.param(pod("a", by="another"), False, ("", "", ""), id="owned by another"),
        pytest.param(pod("a"), True, ("", "", ""), id="orphan of an owner that is being deleted"),
        pytest.param(pod("a", by="owner", app="x"), True, ("", "", ""), id="not released by an owner being deleted"),
    ],
)
def test_claims(candidate, of_deleting, expected):
    claimed = claim(owner(deleting=of_deleting), [candidate], lambda pod: pod.labels["app"] == "web")
    parts = (claimed.owned, claimed.adopt, claimed.release)
    assert tuple(",".join(pod.uid for pod in part) for part in parts) == expected


def test_an_owner_that_is_no_controller_does_not_own():
    candidate = PartialObject(PODS, Metadata(uid="a", labels={}, owner_references=(Owner(uid="owner"),)))
    assert claim(owner(), [candidate], lambda _pod: True).adopt == (candidate,)
