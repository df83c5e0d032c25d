"""PodSecurity on a whole server: pods are refused, templates warned about, namespaces checked."""

import logging

import pytest

from podwire.apiserver.admission.plugins import AdmissionSettings
from podwire.apiserver.admission.pod_security.configuration import PodSecurityConfiguration
from podwire.apiserver.admission.pod_security.levels import Level, LevelVersion, Policy
from podwire.apiserver.admission.pod_security.plugin import existing_pods_warnings, prioritized
from tests.apiserver.support import PODS

P = "pod-security.kubernetes.io/"
NAMESPACE = "/api/v1/namespaces/default"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


async def label(api, query="", **labels):
    patch = {"metadata": {"labels": {f"{P}{key.replace('_', '-')}": value for key, value in labels.items()}}}
    return await api.patch(f"{NAMESPACE}{query}", patch)


async def test_an_enforced_level_refuses_pods_in_upstreams_words(api, pod):
    await label(api, enforce="baseline")

    reply = await api.post(PODS, pod(hostNetwork=True))

    assert (reply.status, reply.body["reason"]) == (403, "Forbidden")
    assert reply.message == (
        'pods "web" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
    )
    assert reply.body["details"] == {"name": "web", "kind": "pods"}
    assert (await api.post(PODS, pod())).status == 201


async def test_a_changed_label_counts_for_the_next_pod(api, pod):
    await label(api, enforce="baseline")
    await label(api, enforce="privileged")

    assert (await api.post(PODS, pod(hostNetwork=True))).status == 201


async def test_warn_answers_with_a_warning(api, pod):
    await label(api, warn="baseline", warn_version="v1.30")

    reply = await api.post(PODS, pod(hostPID=True))

    assert reply.status == 201
    assert reply.warnings == ['299 - "would violate PodSecurity \\"baseline:v1.30\\": host namespaces (hostPID=true)"']


async def test_audit_is_recorded_in_the_log(api, pod, caplog):
    await label(api, audit="baseline")

    with caplog.at_level(logging.INFO, "podwire.apiserver.audit"):
        reply = await api.post(PODS, pod(hostPID=True))

    assert (reply.status, reply.warnings) == (201, [])
    [record] = [record for record in caplog.records if record.name == "podwire.apiserver.audit"]
    assert record.annotations == {
        f"{P}audit-violations": 'would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    }


async def test_a_template_causes_a_warning_and_is_stored(api, deployment):
    await label(api, enforce="baseline")
    manifest = deployment()
    manifest["spec"]["template"]["spec"]["hostPID"] = True

    reply = await api.post(DEPLOYMENTS, manifest)

    assert reply.status == 201
    assert any("would violate PodSecurity" in text for text in reply.warnings)


async def test_an_update_is_checked_when_it_changes_an_image(api, pod):
    made = await api.made(PODS, pod(hostNetwork=True))
    await label(api, enforce="baseline")

    labelled = await api.patch(f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}})
    made["spec"]["containers"][0]["image"] = "other"
    del made["metadata"]["resourceVersion"]
    changed = await api.put(f"{PODS}/web", made)

    assert labelled.status == 200
    assert changed.status == 403
    assert "violates PodSecurity" in changed.message


async def test_ephemeral_containers_are_checked(api, pod):
    await api.made(PODS, pod(node="n"))
    await label(api, enforce="baseline")
    debug = {"name": "debug", "image": "x", "securityContext": {"privileged": True}}

    reply = await api.patch(f"{PODS}/web/ephemeralcontainers", {"spec": {"ephemeralContainers": [debug]}}, "strategic")

    assert reply.status == 403
    assert 'container "debug" must not set securityContext.privileged=true' in reply.message


async def test_a_status_update_is_not_checked(api, pod):
    await api.made(PODS, pod(hostNetwork=True))
    await label(api, enforce="restricted")

    assert (await api.patch(f"{PODS}/web/status", {"status": {"phase": "Running"}})).status == 200


async def test_invalid_labels_of_a_namespace_are_refused(api):
    reply = await label(api, enforce="strict")
    created = await api.post("/api/v1/namespaces", {"metadata": {"name": "x", "labels": {f"{P}warn-version": "1"}}})

    assert reply.status == created.status == 422
    assert reply.message == (
        f'Namespace "default" is invalid: metadata.labels[{P}enforce]: Invalid value: "strict": '
        "must be one of privileged, baseline, restricted"
    )
    assert created.message == (
        f'Namespace "x" is invalid: metadata.labels[{P}warn-version]: Invalid value: "1": must be "latest" or "v1.x"'
    )


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_a_stricter_label_warns_about_existing_pods(api, pod, query):
    for name in ("b", "a", "c"):
        await api.made(PODS, pod(name, hostNetwork=True))
    await api.made(PODS, pod("d", hostPID=True))

    reply = await label(api, query, enforce="baseline")

    assert reply.status == 200
    assert reply.warnings == [
        (
            '299 - "existing pods in namespace \\"default\\" violate the new PodSecurity enforce level '
            '\\"baseline:latest\\""'
        ),
        '299 - "a (and 3 other pods): host namespaces"',
    ]


async def test_a_laxer_label_does_not_warn(api, pod):
    await label(api, enforce="restricted")
    await label(api, enforce="privileged")
    await api.made(PODS, pod(hostNetwork=True))
    assert (await label(api, enforce="baseline")).warnings

    assert (await label(api, enforce="baseline", audit="baseline")).warnings == []
    assert (await label(api, enforce="privileged")).warnings == []


def exempting(**parts):
    configuration = PodSecurityConfiguration(
        defaults=Policy(enforce=LevelVersion(Level.BASELINE)), **{key: frozenset(value) for key, value in parts.items()}
    )
    return AdmissionSettings(pod_security=configuration)


async def test_defaults_apply_without_labels(serve, pod):
    api = await serve(admission=exempting())

    assert (await api.post(PODS, pod(hostNetwork=True))).status == 403


@pytest.mark.parametrize("exempt", [{"users": ["kubernetes-admin"]}, {"namespaces": ["default"]}])
async def test_exempt_users_and_namespaces_are_not_checked(serve, pod, exempt):
    api = await serve(admission=exempting(**exempt))

    assert (await api.post(PODS, pod(hostNetwork=True))).status == 201


async def test_exempt_runtime_classes_are_not_checked(serve, pod):
    api = await serve(admission=exempting(runtime_classes=["sealed"]))
    await api.made("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "sealed"}, "handler": "box"})

    assert (await api.post(PODS, pod(hostNetwork=True, runtimeClassName="sealed"))).status == 201
    assert (await api.post(PODS, pod("other", hostNetwork=True))).status == 403


async def test_labels_of_an_exempt_namespace_cause_a_warning(serve):
    api = await serve(admission=exempting(namespaces=["default"]))

    reply = await label(api, enforce="restricted")

    assert reply.warnings == [
        (
            '299 - "namespace \\"default\\" is exempt from Pod Security, and the policy '
            '(enforce=restricted:latest) will be ignored"'
        )
    ]


async def test_the_plugin_can_be_switched_off(serve, pod):
    api = await serve(admission=AdmissionSettings(disable=("PodSecurity",)))
    await label(api, enforce="restricted")

    assert (await api.post(PODS, pod(hostNetwork=True))).status == 201


def test_pods_of_one_controller_are_checked_last():
    def owned(name, uid=""):
        owners = [{"uid": uid, "controller": True}] if uid else []
        return {"metadata": {"name": name, "ownerReferences": owners}, "spec": {}}

    pods = [owned("a1", "a"), owned("a2", "a"), owned("bare"), owned("b1", "b"), owned("bare2")]

    assert [pod["metadata"]["name"] for pod in prioritized(pods, frozenset())] == ["a1", "bare", "b1", "bare2", "a2"]


def test_an_incomplete_check_says_how_far_it_came():
    warnings = existing_pods_warnings("ns", LevelVersion(Level.BASELINE, 30), {"hostPort": ["b", "a"]}, 5, 9)

    assert warnings == [
        "new PodSecurity enforce level only checked against the first 5 of 9 existing pods",
        'existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:v1.30"',
        "a (and 1 other pod): hostPort",
    ]
