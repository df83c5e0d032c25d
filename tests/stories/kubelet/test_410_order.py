"""Order of starts and ends: init containers, sidecars, probes."""

SHARED = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
VOLUMES = [{"name": "shared", "emptyDir": {}}]
WAIT = "trap 'echo {0} >>/shared/ends; exit 0' TERM; touch /shared/{0}; while :; do sleep 0.05; done"


def ready(node, name):
    return node.get(f"pod {name}")["status"]["containerStatuses"][0]["ready"]


def test_init_containers_run_one_after_the_other_before_the_apps(node, pod, container, name):
    def script(word):
        return f"echo {word} begins >>/shared/all; sleep 0.3; echo {word} ends >>/shared/all"

    inits = [container(name, script(name), **SHARED) for name in ("one", "two")]
    apps = [container("app", "echo app >>/shared/all; cat /shared/all; sleep 3600", **SHARED)]
    node.make(pod(name, containers=apps, initContainers=inits, volumes=VOLUMES, terminationGracePeriodSeconds=0))
    node.wait(f"pod/{name}", "condition=Ready")
    assert node(f"logs {name}").splitlines() == ["one begins", "one ends", "two begins", "two ends", "app"]
    states = node.get(f"pod {name}")["status"]["initContainerStatuses"]
    assert [(state["ready"], state["state"]["terminated"]["reason"]) for state in states] == [(True, "Completed")] * 2


def test_apps_wait_for_an_init_container_that_fails(node, pod, container, name):
    node.make(pod(name, initContainers=[container("i", "exit 5")]))
    node.wait(f"pod/{name}", "jsonpath={.status.initContainerStatuses[0].state.waiting.reason}=CrashLoopBackOff")
    status = node.get(f"pod {name}")["status"]
    assert status["phase"] == "Pending"
    assert status["initContainerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 5
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert "Init:CrashLoopBackOff" in node(f"get pod {name}")


def test_a_failed_init_container_fails_a_pod_that_restarts_nothing(node, pod, container, name):
    node.make(pod(name, initContainers=[container("i", "exit 5")], restartPolicy="Never"))
    node.wait(f"pod/{name}", "jsonpath={.status.phase}=Failed")
    assert "Init:Error" in node(f"get pod {name}")


def test_a_sidecar_starts_before_the_app_outlives_it_and_ends_last(node, pod, container, name):
    sidecars = [container(name, WAIT.format(name), restartPolicy="Always", **SHARED) for name in ("s1", "s2")]
    app = container("app", "ls /shared; echo app >>/shared/ends; sleep 1", **SHARED)
    keeper = {"name": "shared", "hostPath": {"path": str(node.prefix / name), "type": "DirectoryOrCreate"}}
    node.make(pod(name, containers=[app], initContainers=sidecars, volumes=[keeper], restartPolicy="Never"))
    node.wait(f"pod/{name}", "jsonpath={.status.phase}=Succeeded")
    assert node(f"logs {name} -c app").split() == ["s1", "s2"]
    assert (node.prefix / name / "ends").read_text().split() == ["app", "s2", "s1"]


def test_a_sidecar_that_ends_starts_again_beside_a_pod_that_restarts_nothing(node, pod, container, name):
    sidecar = container(
        "s", "test -e /shared/twice && sleep 3600; touch /shared/twice", restartPolicy="Always", **SHARED
    )
    node.make(pod(name, initContainers=[sidecar], volumes=VOLUMES, restartPolicy="Never"))
    node.wait(f"pod/{name}", "jsonpath={.status.initContainerStatuses[0].restartCount}=1")
    node.wait(f"pod/{name}", "condition=Ready")


def test_a_readiness_probe_sets_and_clears_ready(node, pod, container, name):
    probe = {"exec": {"command": ["test", "-e", "/tmp/well"]}, "periodSeconds": 1, "failureThreshold": 1}
    node.make(pod(name, containers=[container("c", readinessProbe=probe)]))
    node.wait(f"pod/{name}", "jsonpath={.status.phase}=Running")
    assert not ready(node, name)
    assert node.event_message(name, "Unhealthy").startswith("Readiness probe failed")
    node.exec(name, "touch /tmp/well")
    node.wait(f"pod/{name}", "condition=Ready")
    node.exec(name, "rm /tmp/well")
    node.wait(f"pod/{name}", "condition=Ready=False")
    assert node.get(f"pod {name}")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_liveness_probe_restarts_a_hanging_container(node, pod, container, name):
    probe = {"exec": {"command": ["test", "!", "-e", "/tmp/ill"]}, "periodSeconds": 1, "failureThreshold": 1}
    node.make(pod(name, containers=[container("c", livenessProbe=probe)]))
    node.wait(f"pod/{name}", "condition=Ready")
    node.exec(name, "touch /tmp/ill")
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].restartCount}=1")
    node.wait(f"pod/{name}", "condition=Ready")
    assert node.event_message(name, "Killing") == "Container c failed liveness probe, will be restarted"
    reasons = [reason for reason, _ in node.events(name)]
    assert reasons.count("Killing") == 1


def test_apps_wait_for_a_sidecars_startup_probe(node, pod, container, name):
    probe = {"exec": {"command": ["test", "-e", "/shared/go"]}, "periodSeconds": 1, "failureThreshold": 100}
    sidecar = container("s", restartPolicy="Always", startupProbe=probe, **SHARED)
    node.make(pod(name, initContainers=[sidecar], volumes=VOLUMES))
    node.wait(f"pod/{name}", "jsonpath={.status.initContainerStatuses[0].state.running}")
    assert node.get(f"pod {name}")["status"]["containerStatuses"][0]["state"].keys() == {"waiting"}
    node(f"exec {name} -c s -- touch /shared/go")
    node.wait(f"pod/{name}", "condition=Ready")


def test_a_readiness_gate_waits_for_its_condition(node, pod, name):
    node.make(pod(name, readinessGates=[{"conditionType": "example.com/open"}]))
    node.wait(f"pod/{name}", "condition=ContainersReady")
    (ready,) = [
        condition for condition in node.get(f"pod {name}")["status"]["conditions"] if condition["type"] == "Ready"
    ]
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    patch = '{"status":{"conditions":[{"type":"example.com/open","status":"True"}]}}'
    node(f"patch pod {name} --subresource=status --type=strategic -p", patch)
    node.wait(f"pod/{name}", "condition=Ready")


def test_a_post_start_hook_that_fails_ends_the_container(node, pod, container, name):
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "exit 9"]}}}
    node.make(pod(name, containers=[container("c", lifecycle=hook)]))
    assert "PostStartHook failed" in node.event_message(name, "FailedPostStartHook")
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CrashLoopBackOff")
