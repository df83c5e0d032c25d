"""Parameters: found by name or label, in the binding's namespace or the request's; missing ones; none at all."""

import pytest

CONFIGS = "/api/v1/namespaces/default/configmaps"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
SECRETS = "/api/v1/namespaces/default/secrets"
KIND = {"apiVersion": "v1", "kind": "ConfigMap"}


@pytest.fixture
def limited(policy, rule):
    """A policy for secrets, whose parameters are config maps."""
    validation = {
        "expression": "params == null || object.metadata.name.size() <= int(params.data.most)",
        "messageExpression": "'at most ' + params.data.most",
    }
    return policy(validation, paramKind=KIND, match={"resourceRules": [rule("secrets")]})


def secret(name):
    return {"metadata": {"name": name}}


async def test_parameters_are_found_by_name_in_the_bindings_namespace(api, limited, binding, enforce, config):
    await api.made(CONFIGS.replace("default", "kube-public"), config("limits", most="3"))
    ref = {"name": "limits", "namespace": "kube-public", "parameterNotFoundAction": "Deny"}
    await enforce(limited, binding(paramRef=ref))
    assert (await api.post(SECRETS, secret("abc"))).status == 201
    assert (await api.post(SECRETS, secret("abcd"))).message.endswith("denied request: at most 3")


async def test_parameters_are_found_in_the_requests_own_namespace(api, limited, binding, enforce, config):
    await enforce(limited, binding(paramRef={"name": "limits", "parameterNotFoundAction": "Allow"}))
    assert (await api.post(SECRETS, secret("before"))).status == 201
    await api.made(CONFIGS, config("limits", most="3"))
    assert (await api.post(SECRETS, secret("after"))).status == 422
    assert (await api.post(SECRETS.replace("default", "kube-public"), secret("elsewhere"))).status == 201


async def test_a_change_of_parameters_counts_at_once(api, limited, binding, enforce, config):
    await api.made(CONFIGS, config("limits", most="3"))
    await enforce(limited, binding(paramRef={"name": "limits", "parameterNotFoundAction": "Deny"}))
    assert (await api.post(SECRETS, secret("four"))).status == 422
    await api.patch(f"{CONFIGS}/limits", {"data": {"most": "4"}})
    assert (await api.post(SECRETS, secret("four"))).status == 201


async def test_all_parameters_that_a_selector_picks_must_agree(api, limited, binding, enforce, config):
    ref = {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Deny"}
    for name, most in (("one", "9"), ("two", "5")):
        await api.made(CONFIGS, config(name, {"limit": "yes"}, most=most))
    await api.made(CONFIGS, config("other", {"limit": "no"}, most="1"))
    await enforce(limited, binding(paramRef=ref))
    assert (await api.post(SECRETS, secret("five5"))).status == 201
    assert (await api.post(SECRETS, secret("sixsix"))).message.endswith("at most 5")


async def test_missing_parameters_are_refused_if_the_binding_denies_them(api, limited, binding, enforce):
    await enforce(limited, binding(paramRef={"name": "none", "parameterNotFoundAction": "Deny"}))
    reply = await api.post(SECRETS, secret("one"))
    why = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    assert reply.message.endswith(f"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {why}")


async def test_a_binding_without_parameters_leaves_them_null(api, limited, binding, enforce):
    await enforce(limited, binding())
    assert (await api.post(SECRETS, secret("however-long"))).status == 201


async def test_each_binding_has_its_own(api, limited, binding, enforce, config):
    for name, most in (("one", "9"), ("two", "5")):
        await api.made(CONFIGS, config(name, most=most))
    refs = [{"name": name, "parameterNotFoundAction": "Deny"} for name in ("one", "two")]
    await enforce(limited, binding("a", paramRef=refs[0]), binding("b", paramRef=refs[1]))
    assert "with binding 'b' denied request: at most 5" in (await api.post(SECRETS, secret("sixsix"))).message


async def test_parameters_can_be_custom_resources(widgets, policy, binding, enforce, config):
    await widgets.made(
        WIDGETS, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "most": 3}
    )
    result = policy(
        "object.metadata.name.size() <= params.most", paramKind={"apiVersion": "example.com/v1", "kind": "Widget"}
    )
    await enforce(result, binding(paramRef={"name": "w", "parameterNotFoundAction": "Deny"}))
    assert (await widgets.post(CONFIGS, config("abc"))).status == 201
    assert (await widgets.post(CONFIGS, config("abcd"))).status == 422


@pytest.mark.parametrize(
    ("kind", "ref", "resource", "path", "why"),
    [
        pytest.param(
            {"apiVersion": "gone.example.com/v1", "kind": "Gone"},
            {"name": "x"},
            "configmaps",
            CONFIGS,
            "failed to configure policy: failed to find resource referenced by paramKind: "
            "'gone.example.com/v1, Kind=Gone'",
            id="no such kind",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Namespace"},
            {"name": "default", "namespace": "default"},
            "configmaps",
            CONFIGS,
            "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`",
            id="a namespace for what is in none",
        ),
        pytest.param(
            KIND,
            {"name": "x"},
            "priorityclasses",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            "failed to configure binding: cannot use namespaced paramRef in policy binding that matches "
            "cluster-scoped resources",
            id="no namespace to look in",
        ),
    ],
)
async def test_parameters_that_cannot_be_looked_for(
    api, policy, binding, enforce, rule, kind, ref, resource, path, why
):
    result = policy("true", paramKind=kind, match={"resourceRules": [rule(resource)]})
    await enforce(result, binding(paramRef={**ref, "parameterNotFoundAction": "Allow"}))
    reply = await api.post(path, {"metadata": {"name": "one"}, **({"value": 1} if resource != "configmaps" else {})})
    assert reply.status == 422
    assert reply.message.endswith(f"denied request: {why}")
