"""Aggregated ClusterRoles on a server: they follow the roles that their selectors pick."""

from podwire.controllers.kinds import CLUSTER_ROLES
from tests.eventually import eventually_async

WIDGETS = {"verbs": ["get"], "apiGroups": ["shop.test"], "resources": ["widgets"]}
LABEL = "rbac.authorization.k8s.io/aggregate-to-view"


async def has(api, *, expected):
    """The roles of users have the rule, or none of them has."""

    async def look():
        roles = [await api.get(CLUSTER_ROLES, name) for name in ("view", "edit", "admin")]
        return [WIDGETS in role["rules"] for role in roles] == [expected] * 3

    await eventually_async(look)


async def test_a_role_with_the_label_joins_view_edit_and_admin_and_leaves_them_again(cluster):
    role = {"metadata": {"name": "widgets", "labels": {LABEL: "true"}}, "rules": [WIDGETS]}
    await cluster.api.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", **role})
    await has(cluster.api, expected=True)
    await cluster.api.patch(CLUSTER_ROLES, "edit", {"rules": []})
    await has(cluster.api, expected=True)
    await cluster.api.delete(CLUSTER_ROLES, "widgets")
    await has(cluster.api, expected=False)
