"""A cluster works past the end of all its first certificates, without a restart of anything."""

import time

import pytest
from cryptography import x509

from podwire.transports import credentials

LIFETIME = 20
SPEAKING = "echo hello; trap 'exit 0' TERM; sleep 100000 & wait"

pytestmark = pytest.mark.timeout(400)


def end_of(pem):
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp()


def certificates(cluster):
    """When each certificate that a component or a person uses ends, by its file."""
    kubeconfigs = [*cluster.layout.state.glob("**/*.kubeconfig"), cluster.layout.kubeconfig]
    ends = {path: end_of(credentials.load(path).certificate.text) for path in kubeconfigs}
    served = [cluster.layout.state / "kubelet/serving.crt", cluster.layout.state / "apiserver/pki/apiserver.crt"]
    return ends | {path: end_of(path.read_text()) for path in served}


def test_a_cluster_works_past_the_end_of_its_first_certificates(cluster, a_pod):
    cluster.up("--certificate-lifetime", f"{LIFETIME}s")
    first = certificates(cluster)
    assert len(first) >= 7
    cluster.apply(a_pod("before", SPEAKING))
    before = cluster.once(cluster.running(1))
    pids = {name: component["pid"] for name, component in cluster.components().items()}
    while time.time() < max(first.values()) + 2:
        assert cluster.get("pods") is not None, "the administrator's kubeconfig works all the time"
        time.sleep(0.5)

    cluster.apply(a_pod("after", SPEAKING))
    assert before.items() <= cluster.once(cluster.running(2)).items()
    cluster.eventually(lambda: cluster.output("logs", "after") == "hello\n", "the API server reaches the kubelet")
    assert cluster.node()["status"] == "True"
    assert min(certificates(cluster).values()) > time.time()
    assert {name: component["pid"] for name, component in cluster.components().items()} == pids
    cluster.delete_all()
    cluster.empty()
    cluster.down()
