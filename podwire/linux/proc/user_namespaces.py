"""User namespaces: made with network and IPC namespaces that belong to them, by a process that ends afterwards.

A process with several threads cannot enter a new user namespace, so another program makes it. Namespaces that a user
namespace owns obey its root: it can configure their links, and mount sysfs and mqueue.
"""

import errno
import os
import select
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from podwire.linux import errors
from podwire.linux.proc import processes

_FLAGS = {"net": "--net", "ipc": "--ipc"}
_SECONDS = 20.0
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


@contextmanager
def process_in_user_namespace(first: int, count: int, kinds: tuple[str, ...]) -> Iterator[int]:
    """A process in a new user namespace, in which ids from 0 are `first` and the following on the host, and in further
    new namespaces. It ends with the block; who wants to keep them pins them. Raises LinuxError."""
    operation = "make a user namespace"
    with ExitStack() as stack:
        (their_in, our_in), (our_out, their_out) = os.pipe(), os.pipe()
        stack.callback(os.close, our_out)
        argv = ["unshare", "--user", *(_FLAGS[kind] for kind in kinds), "--", "sh", "-c", "echo && read line"]
        try:
            child = processes.spawn(argv, env=_ENVIRONMENT, files=(their_in, their_out, their_out))
        except errors.LinuxError:
            os.close(our_in)
            raise
        finally:
            os.close(their_in)
            os.close(their_out)
        stack.callback(os.close, child.pidfd)
        stack.callback(processes.reap, child)
        stack.callback(os.close, our_in)  # it reads the end of its input, and ends
        output = os.read(our_out, 1000) if select.select([our_out], [], [], _SECONDS)[0] else b"it does not answer"
        if output != b"\n":
            detail = output.decode("utf-8", "replace").strip() or "it ended"
            raise errors.Refused(errno.EPERM, operation, f"unshare: {detail}")
        for file in ("uid_map", "gid_map"):
            try:
                with open(f"/proc/{child.pid}/{file}", "w", encoding="ascii") as mapping:
                    mapping.write(f"0 {first} {count}")
            except OSError as error:
                raise errors.from_oserror(error, f"{operation}: write {file}") from error
        yield child.pid
