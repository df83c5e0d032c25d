"""What a pod gets on its way in: an account with its token, a priority, tolerations for failing nodes."""

import asyncio

import pytest

from podwire.apiserver.limits import Limits

PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
FAILURE_TAINTS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


# --- accounts ---------------------------------------------------------------------------------------------------------


async def test_a_pod_gets_the_default_account(api, pod):
    made = await api.made(PODS, pod())

    assert (made["spec"]["serviceAccountName"], made["spec"]["serviceAccount"]) == ("default", "default")


@pytest.mark.parametrize("word", ["serviceAccountName", "serviceAccount"], ids=["by its word", "by the old word"])
async def test_a_pod_names_its_account(api, pod, word):
    await api.made(ACCOUNTS, {"metadata": {"name": "bot"}})

    made = await api.made(PODS, pod(**{word: "bot"}))

    assert (made["spec"]["serviceAccountName"], made["spec"]["serviceAccount"]) == ("bot", "bot")


async def test_an_account_that_is_not_there_is_forbidden(api, pod):
    reply = await api.post(PODS, pod(serviceAccountName="nobody"))

    assert (reply.status, reply.body["reason"]) == (403, "Forbidden")
    assert reply.message == (
        'pods "web" is forbidden: error looking up service account default/nobody: serviceaccount "nobody" not found'
    )
    assert reply.body["details"] == {"name": "web", "kind": "pods"}


async def test_a_default_account_that_comes_a_moment_later_is_waited_for(serve, pod):
    api = await serve(account=False)
    waiting = asyncio.create_task(api.post(PODS, pod()))
    await asyncio.sleep(0.01)
    assert not waiting.done()

    await api.made(ACCOUNTS, {"metadata": {"name": "other"}})
    await api.made(ACCOUNTS, {"metadata": {"name": "default"}})

    assert (await waiting).status == 201


async def test_a_default_account_that_does_not_come_is_forbidden(serve, pod):
    api = await serve(account=False, limits=Limits(default_account_wait=0.01))

    reply = await api.post(PODS, pod())

    assert reply.status == 403
    assert 'serviceaccount "default" not found' in reply.message


async def test_every_container_gets_the_accounts_token(api, pod):
    made = await api.made(PODS, pod(initContainers=[{"name": "i", "image": "busybox"}]))

    spec = made["spec"]
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert volume["projected"]["defaultMode"] == 420
    token, authority, namespace = volume["projected"]["sources"]
    assert token == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    assert authority["configMap"]["name"] == "kube-root-ca.crt"
    assert namespace["downwardAPI"]["items"][0]["path"] == "namespace"
    mount = {"name": volume["name"], "readOnly": True, "mountPath": MOUNT}
    assert [each["volumeMounts"] for each in (*spec["containers"], *spec["initContainers"])] == [[mount], [mount]]


async def test_a_container_that_mounts_something_there_keeps_it(api, pod):
    own = {"name": "own", "mountPath": MOUNT}
    containers = [{"name": "c", "image": "i", "volumeMounts": [own]}, {"name": "d", "image": "i"}]

    made = await api.made(PODS, pod(containers=containers, volumes=[{"name": "own", "emptyDir": {}}]))

    first, second = made["spec"]["containers"]
    assert [each["name"] for each in first["volumeMounts"]] == ["own"]
    assert second["volumeMounts"][0]["name"].startswith("kube-api-access-")


async def test_a_pod_that_was_read_and_is_made_again_gets_no_second_volume(api, pod):
    made = await api.made(PODS, pod("first"))

    again = await api.made(PODS, {"metadata": {"name": "second"}, "spec": made["spec"]})

    assert again["spec"]["volumes"] == made["spec"]["volumes"]


@pytest.mark.parametrize(
    ("account", "own", "mounted"),
    [
        pytest.param(None, None, True, id="nothing said"),
        pytest.param(False, None, False, id="the account says no"),
        pytest.param(False, True, True, id="the pod says yes"),
        pytest.param(True, False, False, id="the pod says no"),
    ],
)
async def test_a_token_is_mounted_unless_disabled(api, pod, account, own, mounted):
    given = {} if account is None else {"automountServiceAccountToken": account}
    await api.made(ACCOUNTS, {"metadata": {"name": "bot"}, **given})
    wish = {} if own is None else {"automountServiceAccountToken": own}

    made = await api.made(PODS, pod(serviceAccountName="bot", **wish))

    assert ("volumes" in made["spec"]) is mounted


async def test_the_accounts_pull_secrets_are_the_pods_unless_it_has_its_own(api, pod):
    await api.made(ACCOUNTS, {"metadata": {"name": "bot"}, "imagePullSecrets": [{"name": "registry"}]})

    inherited = await api.made(PODS, pod("a", serviceAccountName="bot"))
    own = await api.made(PODS, pod("b", serviceAccountName="bot", imagePullSecrets=[{"name": "mine"}]))

    assert inherited["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert own["spec"]["imagePullSecrets"] == [{"name": "mine"}]


async def test_a_mirror_pod_stays_as_it_is_and_has_no_account(api, pod):
    given = pod("mirror", node="n1")
    given["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}

    made = await api.made(PODS, given)
    given["metadata"]["name"] = "other"
    given["spec"]["serviceAccountName"] = "default"
    refused = await api.post(PODS, given)

    assert not {"serviceAccountName", "volumes"} & {*made["spec"]}
    assert refused.status == 403
    assert "a mirror pod may not reference service accounts" in refused.message


# --- priorities -------------------------------------------------------------------------------------------------------


async def test_without_a_class_the_priority_is_zero(api, pod):
    made = await api.made(PODS, pod())

    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "priorityClassName" not in made["spec"]


@pytest.mark.parametrize(
    ("name", "value"), [("system-node-critical", 2000001000), ("system-cluster-critical", 2000000000)]
)
async def test_the_systems_classes_are_there(api, pod, name, value):
    made = await api.made("/api/v1/namespaces/default/pods", pod(priorityClassName=name))

    assert made["spec"]["priority"] == value


async def test_a_priority_class_sets_priority_and_preemption_policy(api, pod):
    await api.made(CLASSES, {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})

    made = await api.made(PODS, pod(priorityClassName="high"))

    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "Never")


async def test_the_lowest_of_the_default_classes_counts(api, pod):
    for name, value in (("high", 1000), ("low", 10)):
        await api.made(CLASSES, {"metadata": {"name": name}, "value": value, "globalDefault": True})

    made = await api.made(PODS, pod())

    assert (made["spec"]["priorityClassName"], made["spec"]["priority"]) == ("low", 10)


async def test_a_class_that_is_not_there_is_forbidden(api, pod):
    reply = await api.post(PODS, pod(priorityClassName="none"))

    assert reply.status == 403
    assert reply.message == 'pods "web" is forbidden: no PriorityClass with name none was found'


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param(
            {"priority": 7}, "the integer value of priority (7) must not be provided in pod spec", id="number"
        ),
        pytest.param(
            {"preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not be provided",
            id="policy",
        ),
    ],
)
async def test_a_pod_may_not_choose_its_priority_itself(api, pod, spec, said):
    reply = await api.post(PODS, pod(**spec))

    assert reply.status == 403
    assert said in reply.message


async def test_the_computed_priority_may_be_given(api, pod):
    assert (await api.post(PODS, pod(priority=0, preemptionPolicy="PreemptLowerPriority"))).status == 201


# --- tolerations ------------------------------------------------------------------------------------------------------


def seconds(made):
    return {
        each["key"]: each.get("tolerationSeconds")
        for each in made["spec"]["tolerations"]
        if each.get("key") in FAILURE_TAINTS
    }


async def test_a_pod_may_stay_five_minutes_on_a_failing_node(api, pod):
    made = await api.made(PODS, pod())

    assert seconds(made) == dict.fromkeys(FAILURE_TAINTS, 300)
    assert {(each["operator"], each["effect"]) for each in made["spec"]["tolerations"]} == {("Exists", "NoExecute")}


@pytest.mark.parametrize(
    ("toleration", "added"),
    [
        pytest.param({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}, 1, id="one"),
        pytest.param({"operator": "Exists"}, 0, id="everything"),
        pytest.param(
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"}, 2, id="other"
        ),
        pytest.param({"key": "example.com/x", "operator": "Exists"}, 2, id="something else"),
    ],
)
async def test_a_pod_with_its_own_tolerations_is_left_alone(api, pod, toleration, added):
    made = await api.made(PODS, pod(tolerations=[toleration]))

    assert len(made["spec"]["tolerations"]) == 1 + added
    assert toleration in made["spec"]["tolerations"]
