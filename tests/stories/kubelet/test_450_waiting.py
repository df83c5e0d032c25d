"""Pods that cannot run yet say what they wait for, and run when it is there; those that never can are turned away."""

import subprocess

import pytest

WAITING = "jsonpath={{.status.containerStatuses[0].state.waiting.reason}}={}"


@pytest.fixture(scope="module")
def node(template, running):
    with running(template, "--max-pods", "6") as made:
        yield made


@pytest.fixture(autouse=True)
def alone(node):
    """Few pods have space here."""
    yield
    node("delete pods --all --grace-period=1")


def message(node, name):
    return node(f"get pod {name} -o jsonpath={{.status.containerStatuses[0].state.waiting.message}}")


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        pytest.param("Never", "ErrImageNeverPull", id="Never"),
        pytest.param("IfNotPresent", "ImagePullBackOff", id="IfNotPresent"),
    ],
)
def test_a_missing_image_is_reported_and_used_once_imported(node, pod, container, name, policy, reason):
    image = f"podwire.local/{name}:1"
    node.make(pod(name, containers=[{**container("c"), "image": image, "imagePullPolicy": policy}]))
    node.wait(f"pod/{name}", WAITING.format(reason))
    assert reason in node(f"get pod {name}")
    words = [node.podwire, "image", "build-root", "--name", image, "--prefix", node.prefix]
    subprocess.run(list(map(str, words)), check=True, timeout=60, capture_output=True)
    node.wait(f"pod/{name}", "condition=Ready")


@pytest.mark.parametrize("kind", ["configmap", "secret"])
def test_a_missing_reference_of_env_is_reported_and_used_once_created(node, pod, container, name, kind):
    source = {"configmap": "configMapRef", "secret": "secretRef"}[kind]
    node.make(pod(name, containers=[container("c", envFrom=[{source: {"name": name}}])]))
    node.wait(f"pod/{name}", WAITING.format("CreateContainerConfigError"))
    assert message(node, name) == f'{kind} "{name}" not found'
    node(f"create {'secret generic' if kind == 'secret' else kind} {name} --from-literal=WORD=here")
    node.wait(f"pod/{name}", "condition=Ready")
    assert node.exec(name, "echo $WORD") == "here\n"


@pytest.mark.parametrize("kind", ["configmap", "secret"])
def test_a_missing_reference_of_a_volume_is_reported_and_used_once_created(node, pod, container, name, kind):
    source = {"configmap": {"configMap": {"name": name}}, "secret": {"secret": {"secretName": name}}}[kind]
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    node.make(pod(name, containers=[container("c", **mount)], volumes=[{"name": "v", **source}]))
    assert f'{kind} "{name}" not found' in node.event_message(name, "FailedMount")
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=ContainerCreating")
    node(f"create {'secret generic' if kind == 'secret' else kind} {name} --from-literal=word=here")
    node.wait(f"pod/{name}", "condition=Ready")
    assert node.exec(name, "cat /v/word") == "here"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"nodeSelector": {"none": "such"}}, "node(s) didn't match Pod's node affinity", id="no such node"),
        pytest.param({"cpu": "10k"}, "Insufficient cpu", id="too much"),
    ],
)
def test_an_unschedulable_pod_waits_and_reports_the_reason(node, pod, container, name, fields, reason):
    cpu = fields.pop("cpu", None) if "cpu" in (fields := dict(fields)) else None
    asked = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    node.make(pod(name, containers=[container("c", **asked)], **fields))
    assert reason in node.event_message(name, "FailedScheduling")
    assert reason in node(f"describe pod {name}")
    assert node.get(f"pod {name}")["status"]["phase"] == "Pending"


def test_a_pod_that_a_full_node_was_given_anyway_is_turned_away_for_good(node, pod, container, name):
    node.make(*(pod(f"{name}-{number}", nodeName="node") for number in range(6)))
    node.wait("pod --all", "condition=Ready")
    node.make(pod(name, nodeName="node"))
    node.wait(f"pod/{name}", "jsonpath={.status.phase}=Failed")
    assert "OutOfpods" in node(f"get pod {name}")
    assert node.event_message(name, "OutOfpods")
    before = node.get(f"pod {name}")
    node(f"delete pod {name}-0")
    node(f"label pod {name} seen=again")
    after = node.get(f"pod {name}")
    assert after["status"] == before["status"]
    assert after["status"]["reason"] == "OutOfpods"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"nodeSelector": {"none": "such"}}, "NodeAffinity", id="of another node"),
        pytest.param({"cpu": "10k"}, "OutOfcpu", id="too big"),
    ],
)
def test_a_pod_that_was_given_to_a_node_that_cannot_take_it_is_turned_away(node, pod, container, name, fields, reason):
    cpu = fields.get("cpu")
    asked = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    spec = {key: value for key, value in fields.items() if key != "cpu"}
    node.make(pod(name, containers=[container("c", **asked)], nodeName="node", **spec))
    node.wait(f"pod/{name}", f"jsonpath={{.status.reason}}={reason}")
    assert node.get(f"pod {name}")["status"]["phase"] == "Failed"
