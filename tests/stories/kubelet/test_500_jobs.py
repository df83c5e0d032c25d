"""Jobs and CronJobs with kubectl on a real node: pods run to their end, are counted, retried and cleaned up."""


def job(name, script, **spec):
    container = {"name": "c", "image": "podwire.local/busybox:latest", "command": ["sh", "-c", script]}
    template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def test_a_job_from_the_command_line_completes(node, name):
    node(f"create job {name} --image=podwire.local/busybox:latest", "--", "sh", "-c", "echo 6 times 7 is 42")
    node.wait(f"job/{name}", "condition=complete")
    assert node(f"logs job/{name}").strip() == "6 times 7 is 42"
    header, row = node(f"get jobs {name}").splitlines()
    assert header.split()[:3] == ["NAME", "STATUS", "COMPLETIONS"]
    assert row.split()[:3] == [name, "Complete", "1/1"]
    described = node(f"describe job {name}")
    assert "1 Succeeded / 0 Failed" in described
    assert "SuccessfulCreate" in described
    assert "Job completed" in described
    node(f"delete job {name}")
    node.eventually(lambda: not node.get(f"pods -l job-name={name}")["items"])
    node.eventually(lambda: not node.left())


def test_an_indexed_job_gives_every_pod_its_index(node, name):
    script = "test $HOSTNAME = $EXPECTED-$JOB_COMPLETION_INDEX && echo part $JOB_COMPLETION_INDEX"
    made = job(name, script, completionMode="Indexed", completions=3, parallelism=2)
    made["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "EXPECTED", "value": name}]
    node.make(made)
    node.wait(f"job/{name}", "condition=complete")
    status = node.get(f"job {name}")["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (3, "0-2")
    logs = node(f"logs -l job-name={name} --tail=-1")
    assert sorted(logs.split()) == ["0", "1", "2", "part", "part", "part"]
    assert not any(pod["metadata"].get("finalizers") for pod in node.get(f"pods -l job-name={name}")["items"])


def test_an_exit_code_fails_a_job_at_once_by_policy(node, name):
    rules = [{"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}}]
    node.make(job(name, "exit 42", backoffLimit=5, podFailurePolicy={"rules": rules}))
    node.wait(f"job/{name}", "condition=failed")
    status = node.get(f"job {name}")["status"]
    failed = next(row for row in status["conditions"] if row["type"] == "Failed")
    assert failed["reason"] == "PodFailurePolicy"
    assert "failed with exit code 42 matching FailJob rule at index 0" in failed["message"]
    assert status["failed"] == 1


def test_a_suspended_job_loses_its_pods_and_runs_when_it_is_resumed(node, name):
    node.make(job(name, "sleep 1000"))
    node.eventually(lambda: node.get(f"job {name}")["status"].get("ready") == 1)
    node(f"patch job {name} -p", '{"spec":{"suspend":true}}')
    node.wait(f"job/{name}", "condition=suspended")
    node.eventually(lambda: not node.get(f"pods -l job-name={name}")["items"])
    node(f"patch job {name} -p", '{"spec":{"suspend":false}}')
    node.eventually(lambda: node.get(f"job {name}")["status"].get("ready") == 1)
    node(f"delete job {name}")


def test_a_job_with_a_time_to_live_goes_by_itself(node, name):
    node.make(job(name, "true", ttlSecondsAfterFinished=0))
    node.eventually(lambda: node.run(f"get job {name}").returncode != 0)
    node.eventually(lambda: not node.get(f"pods -l job-name={name}")["items"])


def test_a_cron_job_can_be_started_by_hand(node, name):
    schedule = "0 0 1 1 *"
    node(
        f"create cronjob {name} --image=podwire.local/busybox:latest --schedule",
        schedule,
        "--",
        "echo",
        "happy new year",
    )
    header, row = node(f"get cronjobs {name}").splitlines()
    assert header.split()[:2] == ["NAME", "SCHEDULE"]
    assert schedule in " ".join(row.split())
    node(f"create job --from=cronjob/{name} {name}-now")
    node.wait(f"job/{name}-now", "condition=complete")
    assert node(f"logs job/{name}-now").strip() == "happy new year"
    node(f"delete cronjob {name}")
    node.eventually(lambda: node.run(f"get job {name}-now").returncode != 0)


def test_a_cron_job_starts_jobs_by_itself(node, name):
    node(f"create cronjob {name} --image=podwire.local/busybox:latest --schedule", "@every 1s", "--", "true")
    node.eventually(lambda: node.get(f"cronjob {name}")["status"].get("lastSuccessfulTime"))
    node(f"delete cronjob {name}")
