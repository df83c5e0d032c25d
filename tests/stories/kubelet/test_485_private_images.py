"""Pods get images of a private registry: Debian's docker-registry with a password, on loopback of the node."""

import json
import subprocess

import pytest

from tests.stories.kubelet.registry import HOST, Registry

LOGIN = {"username": "ann", "password": "secret"}
PROVIDER = """#!/bin/sh
cat > /dev/null
echo called >> "$0.log"
cat <<'END'
{{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse",
 "cacheKeyType": "Registry", "cacheDuration": "1h", "auth": {{"{host}": {{"username": "ann", "password": "secret"}}}}}}
END
"""
CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1",
    "kind": "CredentialProviderConfig",
    "providers": [
        {
            "name": "provider",
            "matchImages": [f"{HOST}/provided"],
            "defaultCacheDuration": "0s",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        }
    ],
}


@pytest.fixture(scope="module")
def node(running, template, tmp_path_factory):
    programs = tmp_path_factory.mktemp("programs")
    (programs / "provider").write_text(PROVIDER.format(host=HOST))
    (programs / "provider").chmod(0o755)
    config = programs / "config.json"
    config.write_text(json.dumps(CONFIG))
    flags = ("--image-credential-provider-config", config, "--image-credential-provider-bin-dir", programs)
    with running(template, *flags) as made:
        registry = Registry(made)
        try:
            registry.push("of-the-pod", "of-the-account", "of-the-node", "provided", "denied")
            made.provider_log = programs / "provider.log"
            made(
                "create secret docker-registry login --docker-server",
                HOST,
                "--docker-username=ann",
                "--docker-password=secret",
            )
            yield made
        finally:
            registry.stop()


def asked(pod, container, name, repository, policy="IfNotPresent", **spec):
    words = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
    image = f"{HOST}/{repository}:1"
    return pod(name, containers=[container("c", words, image=image, imagePullPolicy=policy)], **spec)


def events(node, name, reason):
    return [message for why, message in node.events(name) if why == reason]


def test_a_pod_without_a_login_waits_and_says_why(node, pod, container, name):
    node.make(asked(pod, container, name, "denied"))
    image = f"{HOST}/denied:1"

    def waiting():
        status = node.get(f"pod {name}")["status"].get("containerStatuses") or [{"state": {}}]
        return status[0]["state"].get("waiting", {})

    node.eventually(lambda: waiting().get("reason") == "ImagePullBackOff", waiting)
    assert waiting()["message"].startswith(f'Back-off pulling image "{image}": ErrImagePull: ')
    assert "401: credentials are needed" in waiting()["message"]
    node.eventually(lambda: "Error: ImagePullBackOff" in events(node, name, "Failed"))
    assert events(node, name, "Pulling") == [f'Pulling image "{image}"']
    assert events(node, name, "BackOff") == [f'Back-off pulling image "{image}"']
    assert {"Error: ErrImagePull", "Error: ImagePullBackOff"} < set(events(node, name, "Failed"))


def test_a_pod_with_a_pull_secret_gets_its_image(node, pod, container, name):
    node.make(asked(pod, container, name, "of-the-pod", imagePullSecrets=[{"name": "login"}]))
    node.wait(f"pod/{name}", "condition=Ready")
    node.eventually(lambda: events(node, name, "Pulled"))
    [message] = events(node, name, "Pulled")
    assert message.startswith(f'Successfully pulled image "{HOST}/of-the-pod:1" in ')
    assert message.endswith(" bytes.")


def test_a_pod_has_the_pull_secrets_of_its_service_account(node, pod, container, name):
    node("create serviceaccount puller")
    node("patch serviceaccount puller -p", '{"imagePullSecrets": [{"name": "login"}]}')
    node.make(asked(pod, container, name, "of-the-account", serviceAccountName="puller"))
    assert node.get(f"pod {name}")["spec"]["imagePullSecrets"] == [{"name": "login"}]
    node.wait(f"pod/{name}", "condition=Ready")


def test_a_login_of_the_node_is_for_all_pods(node, pod, container, name):
    (node.root / "config.json").write_text(json.dumps({"auths": {HOST: LOGIN}}))
    try:
        node.make(asked(pod, container, name, "of-the-node", "Always"))
        node.wait(f"pod/{name}", "condition=Ready")
    finally:
        (node.root / "config.json").unlink()


def test_a_credential_provider_is_called_once_for_a_registry(node, pod, container, name):
    for number in range(2):
        node.make(asked(pod, container, f"{name}-{number}", "provided", "Always"))
        node.wait(f"pod/{name}-{number}", "condition=Ready")
    assert node.provider_log.read_text() == "called\n"
    assert "secret" not in node.kubelet.log.read_text()


def test_a_wrong_configuration_of_providers_ends_the_kubelet_with_its_name(node, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    words = ["--kubeconfig", node.kubeconfig, "--root-dir", tmp_path / "root", "--node-name", "other"]
    words += ["--image-credential-provider-config", tmp_path / "config.json"]
    for more, expected in (
        ([], "need each other"),
        (["--image-credential-provider-bin-dir", tmp_path], "config.json: must be CredentialProviderConfig"),
    ):
        command = node.space.command(node.podwire, "kubelet", *words, *more)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert expected in done.stderr
