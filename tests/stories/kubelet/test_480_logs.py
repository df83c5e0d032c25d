"""Logs of a real node: rotated at their size, read across rotations."""

import subprocess

import pytest


@pytest.fixture(scope="module")
def node(running, template):
    flags = ("--container-log-max-size", "20Ki", "--container-log-max-files", 3)
    with running(template, *flags) as made:
        yield made


def files(node, name):
    return sorted(path.name for directory in node.logs.glob(f"*_{name}_*") for path in (directory / "c").iterdir())


def test_a_log_is_rotated_and_read_across_its_files(node, pod, container, name):
    script = (
        "i=0; while [ $i -lt 6000 ]; do echo line $i; i=$((i+1)); [ $((i % 20)) = 0 ] && sleep 0.05; done; sleep 3600"
    )
    node.make(pod(name, containers=[container("c", script)]))
    node.wait(f"pod/{name}", "condition=Ready")
    follower = subprocess.Popen(
        node.kubectl(f"logs -f {name}"), stdout=subprocess.PIPE, text=True, env=node.home, errors="replace"
    )
    seen = []
    with follower:
        try:
            for line in follower.stdout:
                seen.append(line.strip())
                if line == "line 5999\n":
                    break
        finally:
            follower.kill()
    assert seen == [f"line {number}" for number in range(6000)]
    rotated = node.eventually(lambda: (found := files(node, name)) and len(found) == 3 and found)
    assert rotated[0] == "0.log"
    assert rotated[1].endswith(".gz")
    lines = node(f"logs {name}").split("\n")[:-1]
    assert lines[-1] == "line 5999"
    assert lines == [f"line {number}" for number in range(6000 - len(lines), 6000)]
    assert node(f"logs {name} --tail=2000").split("\n")[:-1] == lines[-2000:]


def test_a_crash_loop_keeps_the_logs_of_two_instances(node, pod, container, name):
    node.make(pod(name, containers=[container("c", "echo hello")], restartPolicy="Always"))

    def restarts():
        return sum(status["restartCount"] for status in node.get(f"pod {name}")["status"].get("containerStatuses", ()))

    for count in range(3):
        node(f"annotate pod {name} --overwrite podwire.dev/retry={count}")
        node.eventually(lambda seen=count: restarts() > seen, restarts)
    node.eventually(lambda: len(files(node, name)) <= 2, lambda: files(node, name))
