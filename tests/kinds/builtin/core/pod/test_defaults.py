"""A pod that says little gets what a real server would give it."""

import copy

import pytest

from podwire.kinds.builtin.core.pod.strategy import POD as STRATEGY
from podwire.kinds.podspec.container_defaults import pull_policy
from podwire.protocols.k8sapi.builtin import BUILTIN

POD = BUILTIN.of_kind("v1", "Pod")


def defaulted(**spec):
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "nginx"}], **spec}}
    STRATEGY.apply_defaults(pod)
    return pod


def container(**fields):
    return defaulted(containers=[{"name": "c", "image": "nginx:1", **fields}])["spec"]["containers"][0]


def volume(**source):
    return defaulted(volumes=[{"name": "v", **source}])["spec"]["volumes"][0]


def test_a_bare_pod_is_completed():
    assert defaulted() == {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "nginx",
                    "imagePullPolicy": "Always",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "resources": {},
                }
            ],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        },
        "status": {},
    }


def test_given_fields_stay():
    said = {
        "dnsPolicy": "None",
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "schedulerName": "mine",
        "securityContext": {"runAsUser": 1},
        "terminationGracePeriodSeconds": 0,
    }
    spec = defaulted(**said)["spec"]
    assert {key: spec[key] for key in said} == said


def test_defaulting_twice_changes_nothing():
    once = defaulted(hostNetwork=True, volumes=[{"name": "v"}], resources={"limits": {"cpu": "1"}})
    twice = defaulted(**copy.deepcopy(once["spec"]))
    assert twice["spec"] == once["spec"]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("registry.example:5000/nginx", "Always"),
        ("registry.example:5000/a/nginx:1", "IfNotPresent"),
        ("nginx@sha256:" + "a" * 64, "IfNotPresent"),
        ("nginx:latest@sha256:" + "a" * 64, "Always"),
        ("localhost/Nginx", "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_the_tag_latest_is_always_pulled(image, policy):
    assert pull_policy(image) == policy


def test_a_negative_grace_period_is_one_second():
    assert defaulted(terminationGracePeriodSeconds=-5)["spec"]["terminationGracePeriodSeconds"] == 1


def test_probes_get_their_numbers():
    probe = container(livenessProbe={"httpGet": {"port": 80}, "timeoutSeconds": 0})["livenessProbe"]
    assert probe == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert container(readinessProbe={"grpc": {"port": 1}})["readinessProbe"]["grpc"] == {"port": 1, "service": ""}
    hook = container(lifecycle={"preStop": {"httpGet": {"port": 1}}})["lifecycle"]["preStop"]
    assert hook == {"httpGet": {"port": 1, "path": "/", "scheme": "HTTP"}}


def test_ports_variables_and_init_containers():
    spec = defaulted(
        initContainers=[{"name": "i", "image": "a:1", "restartPolicy": "Always", "ports": [{"containerPort": 1}]}],
        ephemeralContainers=[{"name": "e", "image": "a:1"}],
    )["spec"]
    assert spec["initContainers"][0]["ports"] == [{"containerPort": 1, "protocol": "TCP"}]
    assert spec["ephemeralContainers"][0]["imagePullPolicy"] == "IfNotPresent"
    env = container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}])["env"]
    assert env[0]["valueFrom"]["fieldRef"] == {"fieldPath": "metadata.name", "apiVersion": "v1"}


def test_on_the_hosts_network_ports_are_the_hosts():
    spec = defaulted(
        hostNetwork=True, containers=[{"name": "c", "image": "a", "ports": [{"containerPort": 80}, {"hostPort": 1}]}]
    )["spec"]
    assert [port.get("hostPort") for port in spec["containers"][0]["ports"]] == [80, 1]


def test_requests_follow_limits():
    resources = container(resources={"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}})["resources"]
    assert resources["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_amounts_finer_than_a_thousandth_are_rounded_up():
    resources = container(resources={"limits": {"cpu": "1500u", "memory": "1e-6"}})["resources"]
    assert resources["limits"] == {"cpu": "2m", "memory": "1e-3"}
    assert resources["requests"] == {"cpu": "2m", "memory": "1e-3"}


def test_pod_level_requests_come_from_containers_then_from_limits():
    spec = defaulted(
        resources={"limits": {"cpu": "4", "memory": "1Gi"}},
        containers=[
            {"name": "a", "image": "a", "resources": {"requests": {"cpu": "1"}}},
            {"name": "b", "image": "a", "resources": {"requests": {"cpu": "500m"}}},
        ],
        initContainers=[{"name": "i", "image": "a", "resources": {"requests": {"cpu": "2"}}}],
    )["spec"]
    assert spec["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param({}, {"emptyDir": {}}, id="nothing"),
        pytest.param({"configMap": {"name": "c"}}, {"configMap": {"name": "c", "defaultMode": 420}}, id="config map"),
        pytest.param({"secret": {"defaultMode": 256}}, {"secret": {"defaultMode": 256}}, id="a mode that was said"),
        pytest.param({"hostPath": {"path": "/a"}}, {"hostPath": {"path": "/a", "type": ""}}, id="host path"),
        pytest.param(
            {"downwardAPI": {"items": [{"fieldRef": {"fieldPath": "x"}}]}},
            {"downwardAPI": {"items": [{"fieldRef": {"fieldPath": "x", "apiVersion": "v1"}}], "defaultMode": 420}},
            id="downward API",
        ),
        pytest.param(
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {
                "projected": {
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                    "defaultMode": 420,
                }
            },
            id="token",
        ),
        pytest.param(
            {"image": {"reference": "a:1"}}, {"image": {"reference": "a:1", "pullPolicy": "IfNotPresent"}}, id="image"
        ),
        pytest.param(
            {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {
                "ephemeral": {
                    "volumeClaimTemplate": {"metadata": {}, "spec": {"volumeMode": "Filesystem", "resources": {}}}
                }
            },
            id="ephemeral claim",
        ),
    ],
)
def test_a_volume_is_completed(source, expected):
    assert volume(**source) == {"name": "v", **expected}


def test_the_old_name_of_the_service_account_agrees_with_the_new_one():
    assert defaulted(serviceAccount="old")["spec"]["serviceAccountName"] == "old"
    spec = defaulted(serviceAccount="old", serviceAccountName="new")["spec"]
    assert spec["serviceAccount"] == spec["serviceAccountName"] == "new"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"podIP": "1.1.1.1"}, {"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}]}),
        ({"podIPs": [{"ip": "1.1.1.1"}]}, {"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}]}),
        ({"podIP": "2.2.2.2", "podIPs": [{"ip": "1.1.1.1"}]}, {"podIP": "2.2.2.2", "podIPs": [{"ip": "2.2.2.2"}]}),
    ],
)
def test_host_ip_and_host_ips_agree(status, expected):
    pod = {"metadata": {}, "spec": {"containers": []}, "status": status}
    STRATEGY.apply_defaults(pod)
    assert pod["status"] == expected


def test_a_status_without_generations_and_class_keeps_those_it_had():
    """Clients that do not know the fields leave them out."""
    old = {
        "status": {
            "observedGeneration": 4,
            "qosClass": "Burstable",
            "conditions": [
                {"type": "Ready", "status": "True", "observedGeneration": 3},
                {"type": "x.io/gate", "status": "True"},
            ],
        }
    }
    new = {
        "status": {
            "conditions": [
                {"type": "x.io/gate", "status": "False"},
                {"type": "Ready", "status": "False"},
                {"type": "Initialized", "status": "True", "observedGeneration": 9},
            ]
        }
    }
    STRATEGY.prepare_status(new, old)
    status = new["status"]
    assert (status["observedGeneration"], status["qosClass"]) == (4, "Burstable")
    assert [condition.get("observedGeneration") for condition in status["conditions"]] == [None, 3, 9]


def test_a_status_with_a_new_generation_has_it():
    old = {"status": {"observedGeneration": 4, "conditions": [{"type": "Ready", "observedGeneration": 4}]}}
    new = {"status": {"observedGeneration": 5, "conditions": [{"type": "Ready", "observedGeneration": 5}]}}
    STRATEGY.prepare_status(new, old)
    assert new["status"] == {"observedGeneration": 5, "conditions": [{"type": "Ready", "observedGeneration": 5}]}
