"""Pods of a template, created in batches that double."""

import pytest

from podwire.controllers.pod_control import namespace_is_terminating, pod_of, slow_start
from podwire.protocols.k8sapi.status import ApiError, Reason

OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": {"not": "copied"}},
}


def test_a_pod_takes_labels_annotations_finalizers_and_spec_of_the_template():
    metadata = {"labels": {"app": "web"}, "annotations": {"a": "b"}, "finalizers": ["x/y"], "name": "ignored"}
    pod = pod_of({"metadata": metadata, "spec": {"containers": []}}, OWNER)
    [owner] = pod["metadata"].pop("ownerReferences")
    assert owner == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": "u",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "web-",
            "namespace": "shop",
            "labels": {"app": "web"},
            "annotations": {"a": "b"},
            "finalizers": ["x/y"],
        },
        "spec": {"containers": []},
    }


@pytest.mark.parametrize(
    ("count", "fails_at", "asked", "succeeded"),
    [
        pytest.param(0, None, 0, 0, id="none"),
        pytest.param(10, None, 10, 10, id="all"),
        pytest.param(10_000, 0, 1, 0, id="the first fails: nothing else is asked"),
        pytest.param(10_000, 4, 7, 6, id="one of the third batch fails: that batch is finished"),
    ],
)
async def test_slow_start(count, fails_at, asked, succeeded):
    calls = []

    async def create(index):
        calls.append(index)
        if index == fails_at:
            raise ApiError(Reason.FORBIDDEN, "exceeded quota")

    done, error = await slow_start(count, create)
    assert (len(calls), done, str(error or "")) == (asked, succeeded, "exceeded quota" if fails_at is not None else "")


def test_a_terminating_namespace_is_recognized():
    details = {"causes": [{"reason": "NamespaceTerminating"}]}
    assert namespace_is_terminating(ApiError(Reason.FORBIDDEN, "x", details=details))
    assert not namespace_is_terminating(ApiError(Reason.FORBIDDEN, "x"))
