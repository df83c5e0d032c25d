"""Namespaces: pinned, found, visited, removed."""

import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from podwire.linux import errors, syscalls
from podwire.linux.proc import namespaces
from podwire.linux.proc.namespaces import in_thread, visit
from podwire.linux.values import Veth


def here(kind: str = "net") -> int:
    return Path(f"/proc/thread-self/ns/{kind}").stat().st_ino


@pytest.mark.parametrize("kind", ["net", "ipc"])
def test_a_namespace_is_made_found_and_removed(kernel, tmp_path, kind):
    pinned = kernel.namespaces(tmp_path / "ns", kind)
    assert pinned.list() == []
    one, two = pinned.create("one"), pinned.create("two")
    assert pinned.list() == [one, two]
    assert one.path == pinned.path("one") == f"{tmp_path}/ns/one"
    assert one.inode != two.inode
    pinned.remove("one")
    assert pinned.list() == [two]
    pinned.remove("two")
    assert pinned.list() == []


def test_a_name_is_pinned_once(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path)
    one = pinned.create("one")
    with pytest.raises(errors.NamespaceExists, match=f"make the net namespace {tmp_path}/one"):
        pinned.create("one")
    assert pinned.list() == [one]


def test_remove_is_idempotent(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path / "ns")
    pinned.remove("one")
    pinned.create("one")
    pinned.remove("one")
    pinned.remove("one")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "/etc/passwd", "a\0b"])
def test_a_name_stays_in_its_directory(kernel, tmp_path, name):
    pinned = kernel.namespaces(tmp_path / "ns")
    for call in (pinned.create, pinned.remove, pinned.path):
        with pytest.raises(errors.PathEscapes):
            call(name)
    assert pinned.list() == []


def test_a_network_is_opened_only_where_one_is_pinned(kernel, tmp_path):
    with pytest.raises(errors.NoSuchNamespace):
        kernel.network(tmp_path / "nowhere")
    path = kernel.namespaces(tmp_path, "ipc").create("ipc").path
    with pytest.raises(errors.WrongKind, match="not a net namespace"):
        kernel.network(path)
    pinned = kernel.namespaces(tmp_path)
    gone = pinned.create("gone").path
    pinned.remove("gone")
    with pytest.raises(errors.NoSuchNamespace):
        kernel.network(gone)


@pytest.mark.parametrize("path", ["/etc/passwd", "/tmp", "/dev/null", "/proc/self/stat", "/etc/passwd/x"])
def test_path_that_is_not_a_namespace_is_an_error(kernel, path):
    with pytest.raises(errors.NoSuchNamespace):
        namespaces.identity(path)


def test_pipe_instead_of_a_namespace_does_not_block(kernel, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(errors.NoSuchNamespace):
        namespaces.open_namespace(tmp_path / "pipe")


def test_another_program_enters_a_pinned_namespace(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path).create("one")
    done = subprocess.run(
        ["nsenter", f"--net={pinned.path}", "readlink", "/proc/self/ns/net"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"net:[{pinned.inode}]"


def test_a_file_that_a_crash_left_is_used_again_and_listed_as_empty(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path)
    (tmp_path / "one").touch()
    assert [(item.name, item.inode) for item in pinned.list()] == [("one", 0)]
    assert pinned.create("one").inode != 0
    (tmp_path / "two").touch()
    pinned.remove("two")
    assert not (tmp_path / "two").exists()


def test_a_symlink_is_not_followed_when_a_namespace_is_made(kernel, tmp_path):
    target = tmp_path / "target"
    target.touch()
    (tmp_path / "ns").mkdir()
    (tmp_path / "ns" / "one").symlink_to(target)
    with pytest.raises(errors.LinuxError):
        kernel.namespaces(tmp_path / "ns").create("one")
    assert namespaces_at(target) == 0


def namespaces_at(path) -> int:
    try:
        return namespaces.identity(path)
    except errors.NoSuchNamespace:
        return 0


def test_concurrent_creates_make_one_namespace(kernel, tmp_path):
    """The threads that ask are started here, so they are in this test's mount namespace."""
    pinned = kernel.namespaces(tmp_path)

    def create(_):
        try:
            return pinned.create("one").inode
        except errors.NamespaceExists:
            return None

    with ThreadPoolExecutor(8) as pool:
        made = [item for item in pool.map(create, range(32)) if item]
    assert len(made) == 1
    assert [item.inode for item in pinned.list()] == made
    pinned.remove("one")
    assert pinned.list() == []


def test_a_pin_is_undone_however_often_it_was_made(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path)
    path = pinned.create("one").path
    kernel.mounts.bind("/proc/thread-self/ns/net", path)
    pinned.remove("one")
    assert not (tmp_path / "one").exists()


def test_directory_that_cannot_be_created_is_an_error(kernel):
    with pytest.raises(errors.LinuxError, match="make the net namespace /proc/nowhere/one"):
        kernel.namespaces("/proc/nowhere").create("one")


def test_a_visit_is_over_when_the_block_ends(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path).create("one")
    home = here()
    with visit(pinned.path):
        assert here() == pinned.inode
    assert here() == home
    with pytest.raises(ZeroDivisionError), visit(pinned.path):
        raise ZeroDivisionError
    assert here() == home


def test_a_visit_that_cannot_begin_leaves_nothing_open(kernel, tmp_path, descriptors):
    home, files = here(), descriptors()
    with pytest.raises(errors.NoSuchNamespace), visit(tmp_path / "nowhere"):
        pass
    with pytest.raises(errors.WrongKind), visit(kernel.namespaces(tmp_path, "ipc").create("ipc").path):
        pass
    descriptor = os.open("/etc/passwd", os.O_RDONLY)
    with pytest.raises(errors.WrongKind), visit(descriptor):
        pass
    os.close(descriptor)
    assert here() == home
    assert descriptors() <= files


def test_visits_nest_and_come_back_step_by_step(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path)
    one, two = pinned.create("one"), pinned.create("two")
    with visit(one.path):
        with visit(two.path):
            assert here() == two.inode
        assert here() == one.inode


def test_a_visit_moves_no_other_thread(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path).create("one")
    home = here()
    asked, answer, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        asked.wait()
        seen.append(here())
        answer.set()

    thread = threading.Thread(target=other)
    thread.start()
    with visit(pinned.path):
        asked.set()
        answer.wait()
    thread.join()
    assert seen == [home]


def test_an_ipc_namespace_is_visited_too(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path, "ipc").create("one")
    home = here("ipc")
    with visit(pinned.path, "ipc"):
        assert here("ipc") == pinned.inode
    assert here("ipc") == home


def test_work_in_a_thread_hands_back_its_result_and_its_error():
    assert in_thread(lambda: threading.current_thread() is not threading.main_thread())
    with pytest.raises(ZeroDivisionError):
        in_thread(lambda: 1 // 0)


def test_making_many_leaves_no_thread_and_no_descriptor(kernel, tmp_path, descriptors):
    pinned = kernel.namespaces(tmp_path)
    pinned.create("first")
    threads, files = set(threading.enumerate()), descriptors()
    for number in range(20):
        pinned.create(str(number))
        kernel.network(pinned.path(str(number))).close()
        pinned.remove(str(number))
    assert set(threading.enumerate()) <= threads
    assert descriptors() <= files


def test_a_link_made_in_a_namespace_is_not_seen_from_here(kernel, tmp_path):
    path = kernel.namespaces(tmp_path).create("one").path
    network = kernel.network(path)
    network.links.add(Veth("a0", "a1"))
    network.close()
    assert "a0" not in Path("/proc/thread-self/net/dev").read_text()
    with visit(path):
        assert "a0" in Path("/proc/thread-self/net/dev").read_text()


def test_refused_system_call_error_names_the_operation():
    with pytest.raises(errors.LinuxError, match="enter a namespace"):
        syscalls.setns(-1, syscalls.NEWNET)
