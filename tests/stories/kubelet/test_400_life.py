"""Pods live and end as their policies say: restarts and back-off, exit codes and last words, deadlines, new images."""

import pytest


def phase(node, name):
    return node.get(f"pod {name}")["status"]["phase"]


def test_a_pod_comes_runs_and_goes_without_a_trace(node, pod, name):
    node.make(pod(name))
    node.wait(f"pod/{name}", "condition=Ready")
    status = node.get(f"pod {name}")["status"]
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("10.77.")
    assert [reason for reason, _ in node.events(name)] == ["Scheduled", "Pulled", "Created", "Started"]
    node(f"delete pod {name}")
    assert node.run(f"get pod {name}").returncode != 0
    node.eventually(lambda: not node.left())


@pytest.mark.parametrize(
    ("policy", "script", "ended"),
    [
        pytest.param("Never", "exit 0", "Succeeded", id="Never, done"),
        pytest.param("Never", "exit 3", "Failed", id="Never, failed"),
        pytest.param("OnFailure", "exit 0", "Succeeded", id="OnFailure, done"),
        pytest.param("OnFailure", "test -e /seen/it || { touch /seen/it; exit 1; }", "Succeeded", id="second try"),
    ],
)
def test_how_a_pod_ends(node, pod, container, name, policy, script, ended):
    seen = {"volumeMounts": [{"name": "seen", "mountPath": "/seen"}]}
    node.make(pod(name, containers=[container("c", script, **seen)], restartPolicy=policy,
                  volumes=[{"name": "seen", "emptyDir": {}}]))  # fmt: skip
    node.wait(f"pod/{name}", f"jsonpath={{.status.phase}}={ended}")
    (status,) = node.get(f"pod {name}")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == (3 if "3" in script else 0)
    assert status["restartCount"] == (1 if "seen" in script else 0)


def test_a_crashing_container_backs_off_longer_each_time_and_reports_it(node, pod, name):
    node.make(pod(name, "exit 7"))
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CrashLoopBackOff")
    (status,) = node.get(f"pod {name}")["status"]["containerStatuses"]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert status["state"]["waiting"]["message"].startswith("back-off 10s restarting failed container=c0")
    assert phase(node, name) == "Running"
    assert "CrashLoopBackOff" in node(f"get pod {name}")
    assert node.event_message(name, "BackOff").startswith("Back-off restarting failed container c0 in pod")


def test_a_person_may_ask_for_the_next_try_now(node, pod, name):
    node.make(pod(name, "exit 7"))
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CrashLoopBackOff")
    node(f"annotate pod {name} podwire.dev/retry=now")
    node.eventually(lambda: node.get(f"pod {name}")["status"]["containerStatuses"][0]["restartCount"] > 1)


def test_exit_code_and_last_words_are_shown(node, pod, container, name):
    containers = [
        container("file", "echo -n to the file >/dev/termination-log; exit 4"),
        container("log", "echo to the log; exit 5", terminationMessagePolicy="FallbackToLogsOnError"),
        container("none", "echo unheard; exit 0"),
    ]
    node.make(pod(name, containers=containers, restartPolicy="Never"))
    node.wait(f"pod/{name}", "jsonpath={.status.phase}=Failed")
    ends = [status["state"]["terminated"] for status in node.get(f"pod {name}")["status"]["containerStatuses"]]
    assert [(end["exitCode"], end["reason"], end.get("message")) for end in ends] == [
        (4, "Error", "to the file"),
        (5, "Error", "to the log\n"),
        (0, "Completed", None),
    ]
    output = node(f"describe pod {name}")
    assert "to the file" in output
    assert "Exit Code:    4" in output


def test_a_deadline_ends_a_pod(node, pod, name):
    node.make(pod(name))
    node.wait(f"pod/{name}", "condition=Ready")
    node(f"patch pod {name} -p", '{"spec":{"activeDeadlineSeconds":1}}')
    node.wait(f"pod/{name}", "jsonpath={.status.phase}=Failed")
    status = node.get(f"pod {name}")["status"]
    assert status["reason"] == "DeadlineExceeded"
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=0")
    assert node.get(f"pod {name}")["status"]["reason"] == "DeadlineExceeded"


def test_another_image_restarts_the_container_in_place(node, pod, name):
    node.make(pod(name))
    node.wait(f"pod/{name}", "condition=Ready")
    before = node.get(f"pod {name}")["status"]
    node(f"set image pod/{name} c0=podwire.local/busybox")
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].restartCount}=1")
    node.wait(f"pod/{name}", "condition=Ready")
    after = node.get(f"pod {name}")["status"]
    assert after["podIP"] == before["podIP"]
    assert "Container c0 definition changed, will be restarted" in node.event_message(name, "Killing")


def test_a_missing_program_is_reported_and_retried_with_back_off(node, pod, container, name):
    node.make(pod(name, containers=[{**container("c"), "command": ["/no/such/program"]}]))
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CrashLoopBackOff")
    (status,) = node.get(f"pod {name}")["status"]["containerStatuses"]
    assert status["restartCount"] <= 1
    assert "/no/such/program" in node.event_message(name, "Failed")


def test_an_ephemeral_container_looks_at_a_pod_and_ends_for_good(node, pod, name):
    node.make(pod(name))
    node.wait(f"pod/{name}", "condition=Ready")
    node(f"debug {name} --image=podwire.local/busybox --image-pull-policy=Never -c look -- sh -c", "hostname; exit 4")
    node.wait(f"pod/{name}", "jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}=4")
    assert node(f"logs {name} -c look") == f"{name}\n"
    status = node.get(f"pod {name}")["status"]
    assert status["phase"] == "Running"
    assert status["ephemeralContainerStatuses"][0]["restartCount"] == 0
