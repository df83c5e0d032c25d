"""Processes that are found by a variable of their environment."""

import os
import subprocess
import time

import pytest

from podwire.linux.proc.marked import find_marked, kill_marked, marked_environment
from podwire.linux.proc.processes import has_ended
from tests.eventually import eventually

MARK = f"PODWIRE_TEST_MARK_{os.getpid()}"
PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def start():
    """Starts shells with a mark; they are killed in the end."""
    started = []

    def start(script: str, mark: str = "a") -> subprocess.Popen[str]:
        words = ["sh", "-c", script]
        started.append(subprocess.Popen(words, env={**PATH, MARK: mark}, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    kill_marked(MARK, lambda _environment: True)
    for process in started:
        process.communicate()


def of(mark: str):
    return lambda environment: environment[MARK] == mark


def test_children_in_a_session_of_their_own_are_found_and_killed(start):
    process = start("setsid sleep 600 & echo $!; wait")
    child = int(process.stdout.readline())
    while marked_environment(child, MARK) is None:  # setsid may have to fork first
        time.sleep(0.01)
    assert {process.pid, child} <= set(find_marked(MARK, of("a")))
    assert {process.pid, child} <= set(kill_marked(MARK, of("a")))
    assert list(find_marked(MARK, of("a"))) == []


def test_processes_with_another_value_are_spared(start):
    start("exec sleep 600", "a")
    other = start("exec sleep 600", "b")
    kill_marked(MARK, of("a"))
    assert other.poll() is None
    assert list(find_marked(MARK, lambda _environment: True)) == [other.pid]


def test_children_with_another_environment_die_with_the_group_of_their_leader(start):
    process = start("setsid sh -c 'env -i /bin/sleep 60 >/dev/null & echo $!; exec sleep 600'")
    child = int(process.stdout.readline())
    while marked_environment(child, MARK) is not None:  # until it is `sleep`
        time.sleep(0.01)
    kill_marked(MARK, of("a"))
    eventually(lambda: has_ended(child), 10)


def test_a_process_that_keeps_forking_does_not_escape(start):
    process = start("echo begun; while :; do (setsid sh -c 'sleep 0.02; sleep 600' &); sleep 0.01; done")
    process.stdout.readline()
    time.sleep(0.2)
    assert len(kill_marked(MARK, of("a"))) > 2
    assert list(find_marked(MARK, of("a"))) == []


def test_the_calling_process_is_never_found(monkeypatch):
    """Its own environment may have the mark: a runtime that was started by a plugin."""
    words = ["python3", "-c", "import sys; from podwire.linux.proc.marked import find_marked; "]
    words[-1] += f"print(list(find_marked({MARK!r}, lambda _environment: True)))"
    done = subprocess.run(words, env={**os.environ, MARK: "a"}, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
