"""ServiceAccount: the account of a pod, its token and its pull secrets."""

import asyncio

import pytest

from podwire.apiserver.limits import Limits

PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


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
    assert [container["volumeMounts"] for container in (*spec["containers"], *spec["initContainers"])] == [
        [mount],
        [mount],
    ]


async def test_a_container_that_mounts_something_there_keeps_it(api, pod):
    own = {"name": "own", "mountPath": MOUNT}
    containers = [{"name": "c", "image": "i", "volumeMounts": [own]}, {"name": "d", "image": "i"}]

    made = await api.made(PODS, pod(containers=containers, volumes=[{"name": "own", "emptyDir": {}}]))

    first, second = made["spec"]["containers"]
    assert [mount["name"] for mount in first["volumeMounts"]] == ["own"]
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
