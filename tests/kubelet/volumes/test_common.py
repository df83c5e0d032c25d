"""The pod that nearly every pod is: a token, the cluster's root certificate, the namespace."""

import stat

import pytest


async def common(node, **rest):
    await node.make("ConfigMap", "kube-root-ca.crt", data={"ca.crt": "PEM"})
    return await node.pod(automountServiceAccountToken=True, **rest)


async def test_the_common_pod_finds_its_token_certificate_and_namespace(node):
    pod = await common(node)
    await node.volumes.prepare(pod)
    [mount] = await node.mounts(pod)
    assert mount.container_path == "/var/run/secrets/kubernetes.io/serviceaccount"
    print(mount)
