"""Pods end well: hooks, signals, grace periods that are kept, shortened or ignored."""

import json

import pytest

SHARED = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}


@pytest.fixture
def place(node, name):
    """A directory that outlives the pod, as one of its volumes."""
    path = node.prefix / f"place-{name}"
    path.mkdir()
    return path, [{"name": "shared", "hostPath": {"path": str(path), "type": "Directory"}}]


def deaf(node, pod, container, name, grace):
    """A running pod that does not hear TERM."""
    script = "trap '' TERM; touch /tmp/deaf; while :; do sleep 0.05; done"
    probe = {"exec": {"command": ["test", "-e", "/tmp/deaf"]}, "periodSeconds": 1}
    node.make(pod(name, containers=[container("c", script, readinessProbe=probe)], terminationGracePeriodSeconds=grace))
    node.wait(f"pod/{name}", "condition=Ready")


def last_sight(node, name, *words):
    """Delete a pod; how its status was before it went."""
    seen = []
    with node.watching(f"get pod {name} -o json --watch --output-watch-events") as watch:
        next(watch)
        node(f"delete pod {name} {' '.join(words)}")
        for line in watch:
            seen.append(line)
            if line["type"] == "DELETED":
                break
    return seen[-1]["object"]


def test_a_trapped_term_ends_a_pod_with_its_own_code(node, pod, name):
    node.make(pod(name, "trap 'exit 3' TERM; while :; do sleep 0.05; done"))
    node.wait(f"pod/{name}", "condition=Ready")
    last = last_sight(node, name)
    (status,) = last["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 3
    assert last["status"]["phase"] == "Failed"


def test_a_pre_stop_hook_comes_before_term(node, pod, container, name, place):
    path, volumes = place
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >>/shared/order; sleep 0.3"]}}}
    script = "trap 'echo term >>/shared/order; exit 0' TERM; while :; do sleep 0.05; done"
    node.make(pod(name, containers=[container("c", script, lifecycle=hook, **SHARED)], volumes=volumes))
    node.wait(f"pod/{name}", "condition=Ready")
    node(f"delete pod {name}")
    assert (path / "order").read_text().split() == ["hook", "term"]
    assert ("Killing", "Stopping container c") in node.events(name)


def test_a_failed_pre_stop_hook_is_reported_and_the_pod_still_ends(node, pod, container, name):
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "exit 4"]}}}
    node.make(pod(name, containers=[container("c", lifecycle=hook)]))
    node.wait(f"pod/{name}", "condition=Ready")
    node(f"delete pod {name}")
    assert node.event_message(name, "FailedPreStopHook")


def test_a_container_that_ignores_sigterm_is_killed_after_the_grace_period(node, pod, container, name):
    deaf(node, pod, container, name, 1)
    last = last_sight(node, name)
    (status,) = last["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 137


def test_a_grace_period_may_be_shortened_while_it_runs(node, pod, container, name):
    deaf(node, pod, container, name, 3600)
    node(f"delete pod {name} --wait=false")
    assert node.get(f"pod {name}")["metadata"]["deletionGracePeriodSeconds"] == 3600
    node(f"delete pod {name} --grace-period=1")
    assert node.run(f"get pod {name}").returncode != 0


def test_a_forced_delete_forgets_the_pod_at_once_and_its_containers_go_after_it(node, pod, container, name):
    deaf(node, pod, container, name, 3600)
    pid = node.pid(name)
    node(f"delete pod {name} --force --grace-period=0")
    assert node.run(f"get pod {name}").returncode != 0
    node.eventually(lambda: not node.alive(pid))


def test_a_pod_may_be_deleted_while_its_image_is_missing(node, pod, container, name):
    node.make(pod(name, containers=[{**container("c"), "image": "podwire.local/none:1"}]))
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImageNeverPull")
    node(f"delete pod {name}")


def test_a_pod_of_the_same_name_is_another_pod(node, pod, name):
    node.make(pod(name))
    node.wait(f"pod/{name}", "condition=Ready")
    old = node.get(f"pod {name}")
    node(f"delete pod {name} --force --grace-period=0")
    node.make(pod(name))
    node.wait(f"pod/{name}", "condition=Ready")
    new = node.get(f"pod {name}")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert new["status"]["containerStatuses"][0]["containerID"] != old["status"]["containerStatuses"][0]["containerID"]


def test_ten_pods_come_and_go_together(node, pod, name):
    node.make(*(pod(f"{name}-{number}", metadata={"name": f"{name}-{number}", "labels": {"of": name}})
                for number in range(10)))  # fmt: skip
    node.wait(f"pod -l of={name}", "condition=Ready")
    ips = {item["status"]["podIP"] for item in node.get(f"pod -l of={name}")["items"]}
    assert len(ips) == 10
    node(f"delete pod -l of={name}")
    assert json.loads(node(f"get pod -l of={name} -o json"))["items"] == []
