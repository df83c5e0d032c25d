"""Policies and bindings as manifests, and a way to have them in force."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.apiserver.support import answer_when

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/validatingadmissionpolicies", f"{GROUP}/validatingadmissionpolicybindings"


def rules(*resources: str, operations: tuple[str, ...] = ("CREATE", "UPDATE"), **more: Any) -> dict[str, Any]:
    """A resource rule; `configmaps` and whatever else, in every group and version."""
    return {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": list(resources),
        **more,
    }


@pytest.fixture
def rule() -> Callable[..., dict[str, Any]]:
    return rules


@pytest.fixture
def policy() -> Callable[..., dict[str, Any]]:
    """A policy for config maps; validations are expressions, or as they are written."""

    def make(*validations: Any, name: str = "p", match: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
        result = [
            {"expression": validation} if isinstance(validation, str) else validation for validation in validations
        ]
        constraints = {"resourceRules": [rules("configmaps")], **(match or {})}
        return {
            "metadata": {"name": name},
            "spec": {"matchConstraints": constraints, **({"validations": result} if result else {}), **spec},
        }

    return make


@pytest.fixture
def binding() -> Callable[..., dict[str, Any]]:
    def make(name: str = "b", policy: str = "p", actions: tuple[str, ...] = ("Deny",), **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": list(actions), **spec}}

    return make


@pytest.fixture
def enforce(api) -> Callable[..., Awaitable[None]]:
    """Stores a policy and its bindings, and waits until they are what the server goes by."""

    async def enforced(policy: dict[str, Any], *bindings: dict[str, Any]) -> None:
        stored = await api.made(POLICIES, policy)
        for entry in bindings:
            await api.made(BINDINGS, entry)
        wanted = {binding["metadata"]["name"] for binding in bindings}
        name, keeper = stored["metadata"]["name"], api.assembled.policies

        async def active() -> set[str]:
            held = keeper.active.bound
            return {one.name for item in held if item.policy.name == name for one in item.bindings}

        await answer_when(active, lambda names: names >= wanted)

    return enforced
