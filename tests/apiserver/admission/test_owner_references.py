"""OwnerReferencesPermissionEnforcement: users who may delete change owners, users who may finalize block them."""

import pytest

from podwire.apiserver.admission.chain import Operation
from podwire.apiserver.admission.owner_references import OwnerReferencesPermissionEnforcement
from podwire.apiserver.identity.authorization import Decision
from podwire.apiserver.identity.users import User
from podwire.apiserver.registry import Registry
from podwire.kinds.catalog import builtin_resources
from podwire.kinds.schema import Schemas
from podwire.kinds.schema.definitions import load
from podwire.protocols.k8sapi.status import ApiError

REGISTRY = Registry(builtin_resources(Schemas(load())))


class Granting:
    """Grants verbs on resources and their subresources."""

    def __init__(self, *granted):
        self.granted = granted

    def check(self, _user, attributes):
        asked = f"{attributes.verb} {attributes.resource}/{attributes.subresource}".removesuffix("/")
        return Decision(allowed=asked in self.granted, reason="not granted")


def owned(*owners):
    return {"metadata": {"name": "a", "ownerReferences": list(owners)}}


def owner(uid="u", *, blocking=False, kind="Deployment"):
    return {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": uid, "blockOwnerDeletion": blocking}


async def validate(authorizer, obj, old=None, subresource="", resource="configmaps"):
    operation = Operation(
        verb="UPDATE" if old else "CREATE",
        resource=REGISTRY.builtin("", resource),
        namespace="default",
        obj=obj,
        old=old,
        user=User("jane"),
        subresource=subresource,
    )
    await OwnerReferencesPermissionEnforcement(authorizer, REGISTRY).validate(operation)


async def test_owners_of_a_new_object_are_free_unless_they_block():
    await validate(Granting(), owned(owner()))
    with pytest.raises(ApiError, match="refers to a resource you can't set finalizers on: not granted, <nil>"):
        await validate(Granting(), owned(owner(blocking=True)))


async def test_a_user_who_may_set_finalizers_may_block():
    await validate(Granting("update deployments/finalizers"), owned(owner(blocking=True)))
    await validate(Granting("update */finalizers"), owned(owner(blocking=True)))


async def test_changed_owners_need_the_right_to_delete():
    with pytest.raises(ApiError, match='configmaps "a" is forbidden: cannot set an ownerRef on a resource you can\'t'):
        await validate(Granting(), owned(owner()), old=owned())
    await validate(Granting("delete configmaps"), owned(owner()), old=owned())


async def test_unchanged_owners_need_nothing():
    await validate(Granting(), owned(owner(blocking=True)), old=owned(owner(blocking=True)))


async def test_a_reference_that_begins_to_block_is_checked():
    with pytest.raises(ApiError, match="can't set finalizers"):
        await validate(Granting("delete configmaps"), owned(owner(blocking=True)), old=owned(owner()))


async def test_an_unknown_kind_of_owner_is_named():
    with pytest.raises(ApiError, match='no matches for kind "Ship" in version "apps/v1"'):
        await validate(Granting(), owned(owner(blocking=True, kind="Ship")))


async def test_the_status_of_pods_is_exempt():
    await validate(Granting(), owned(owner()), old=owned(), subresource="status", resource="pods")
