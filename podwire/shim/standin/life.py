"""One container's life: started, looked after, ended, told."""

import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import termios
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import NoReturn

from podwire.shim.standin.clients import EXITED, Client, Mode
from podwire.shim.standin.command import Given, why
from podwire.shim.standin.files import remove, write_file
from podwire.shim.standin.journal import STDERR, STDOUT, Journal, Stream
from podwire.shim.standin.launcher import fork_launcher
from podwire.shim.standin.processes import code_of, end_family, kill, kill_listed, stand_over, waited

CHUNK, REASON, CLIENTS = 64 << 10, 3 << 10, 64
HOLD, ADOPT, DRAIN, ASK, TICK, NAP = 1.0, 2.0, 0.5, 5.0, 100, 0.0003
HEARD = (Mode.ASKING, Mode.FEEDING)


class Life(Enum):
    STARTING = auto()
    RUNNING = auto()
    ENDED = auto()
    TOLD = auto()


class GaveUp(Exception):
    """The container did not start, and why."""


class Shim:
    def __init__(self, given: Given, told: int) -> None:
        self._given, self._told = given, told
        self._tty = "--tty" in given.flags
        self._life, self._since = Life.STARTING, time.monotonic()
        self._owner = self._recorded = False
        self._launcher = self._init = self._status = self._start_ticks = self._started_ns = self._ended_ns = 0
        self._reason, self._input, self._full = b"", -1, False
        self._clients: list[Client] = []
        self._journal = Journal(None)

    def live(self) -> NoReturn:
        try:
            self._start()
            self._look_after()
        except GaveUp as reason:
            end_family()
            text = str(reason)
            if self._owner:
                write_file("failed", text)
                remove("console.sock", "shim.sock")
            self._tell(f"-{text}")
            os._exit(1)
        remove("shim.sock")
        os._exit(0)

    def _tell(self, text: str) -> None:
        try:
            os.write(self._told, text.encode(errors="surrogateescape"))
        except BrokenPipeError:
            pass  # the foreground process is gone; the files tell, too
        finally:
            os.close(self._told)

    def _start(self) -> None:
        self._arrived, _ = stand_over((signal.SIGCHLD,))
        state, log = self._given.values["--state"], self._given.values.get("--log")
        try:
            os.chdir(state)
        except OSError as error:
            raise GaveUp(f"{state}: {why(error)}") from None
        if os.path.lexists("started"):
            raise GaveUp(f"{state} served a start before")
        self._door = self._listen("shim.sock")
        remove("failed", "pid")
        if self._tty:
            self._console = self._listen("console.sock")
        try:
            self._journal = Journal(log)
        except OSError as error:
            raise GaveUp(f"{log}: {why(error)}") from None
        self._spawn()

    def _listen(self, name: str) -> socket.socket:
        door = socket.socket(socket.AF_UNIX)
        door.setblocking(False)
        os.fchmod(door.fileno(), 0o600)
        try:
            door.bind(name)
        except OSError as error:
            raise GaveUp(f"{self._given.values['--state']}/{name}: {why(error)}") from None
        door.listen(CLIENTS)
        self._owner = True
        return door

    def _spawn(self) -> None:
        out, to_out = os.pipe()
        err, to_err = os.pipe()
        from_input = 0
        if "--stdin" in self._given.flags:
            from_input, self._input = os.pipe()
            os.set_blocking(self._input, False)
        self._out, self._err = Stream(out, STDOUT, self._journal), Stream(err, STDERR, self._journal)
        self._launcher = fork_launcher(self._given, (from_input, to_out, to_err))
        for each in (to_out, to_err, *((from_input,) if from_input else ())):
            os.close(each)

    def _decide(self, status: int) -> None:
        """The runtime is gone: is its container there, and our child?"""
        if status:
            reason = self._reason or self._err.read(REASON - 1) or b"it did not say why"
            text = reason.rstrip(b"\n").decode(errors="surrogateescape")
            raise GaveUp(f"the runtime ended with {code_of(status)}: {text}")
        if self._tty:
            self._receive_terminal()
        try:
            with open("pid", encoding="ascii") as file:
                self._init = int(file.read())
        except (OSError, ValueError):
            raise GaveUp("the runtime left no pid file") from None
        self._adopt()
        with open(f"/proc/{self._init}/stat", "rb") as file:
            self._start_ticks = int(file.read().rpartition(b")")[2].split()[19])
        self._started_ns, self._life = time.time_ns(), Life.RUNNING
        try:
            write_file("started", self._describe())
        except OSError as error:
            raise GaveUp(f"{self._given.values['--state']}/started: {why(error)}") from None
        self._tell(f"+{self._init}")

    def _adopt(self) -> None:
        until = time.monotonic() + ADOPT
        while time.monotonic() < until:
            try:
                os.waitid(os.P_PID, self._init, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                time.sleep(NAP)
            else:
                return
        raise GaveUp(f"process {self._init} of the pid file is not ours")

    def _receive_terminal(self) -> None:
        try:
            peer, _ = self._console.accept()
            peer.setblocking(False)
            _, [terminal], _, _ = socket.recv_fds(peer, 256, 1)
        except (OSError, ValueError):
            raise GaveUp("the runtime handed over no terminal") from None
        peer.close()
        self._console.close()
        remove("console.sock")
        self._close_input()
        self._out.close()
        self._err.close()
        self._out = Stream(terminal, STDOUT, self._journal)
        if "--stdin" in self._given.flags:
            self._input = os.dup(terminal)

    def _describe(self) -> str:
        told: dict[str, str | int]
        if self._life is Life.STARTING:
            told = {"state": "starting", "shim": os.getpid()}
        elif self._life is Life.RUNNING:
            told = {"state": "running", "pid": self._init, "start_ticks": self._start_ticks}
            told |= {"time_ns": self._started_ns, "lost": self._journal.lost, "shim": os.getpid()}
        else:
            number = os.WTERMSIG(self._status) if os.WIFSIGNALED(self._status) else 0
            told = {"state": "exited", "code": code_of(self._status), "signal": number}
            told |= {"time_ns": self._ended_ns, "lost": self._journal.lost}
        return json.dumps(told, separators=(",", ":"))

    def _look_after(self) -> None:
        children = True
        while self._life is not Life.TOLD or not self._recorded or children:
            ready = self._poll()
            children = self._reap()
            for stream in (self._out, self._err):
                if stream.fd in ready:
                    self._pump(stream)
            if self._input in ready:
                self._full = False
            for client in self._clients:
                self._attend(client, ready.get(client.connection.fileno(), 0))
            self._clients = [each for each in self._clients if not each.gone]
            if self._door.fileno() in ready:
                self._welcome()
            drained = self._out.fd < 0 and self._err.fd < 0
            if self._life is Life.ENDED and (drained or time.monotonic() > self._since + DRAIN):
                self._finish()
            if self._life is Life.TOLD and not self._recorded:
                self._record()

    def _poll(self) -> dict[int, int]:
        held = self._life is Life.STARTING and time.monotonic() < self._since + HOLD
        poll = select.poll()
        poll.register(self._arrived, select.POLLIN)
        poll.register(self._door, select.POLLIN)
        for stream in (self._out, self._err):
            if stream.fd >= 0 and not held:
                poll.register(stream.fd, select.POLLIN)
        if self._full and self._input >= 0:
            poll.register(self._input, select.POLLOUT)
        for client in self._clients:
            if client.mode is not Mode.FEEDING or not self._full:
                events = select.POLLOUT if client.behind else 0
                poll.register(client.connection, select.POLLIN if client.mode in HEARD else events)
        asked = any(each.mode is Mode.ASKING for each in self._clients)
        ticking = asked or (self._life is not Life.RUNNING and not self._recorded)
        ready = dict(poll.poll(TICK if ticking else None))
        if self._arrived.fileno() in ready:
            self._arrived.recv(4096)
        return ready

    def _reap(self) -> bool:
        """Tells whether there are children left."""
        if self._launcher:
            pid, status = os.waitpid(self._launcher, os.WNOHANG)
            if not pid:
                return True
            self._launcher = 0
            self._decide(status)
        while (dead := waited())[0] > 0:
            if dead[0] == self._init:
                self._init, self._status, self._life = 0, dead[1], Life.ENDED
                self._since, self._ended_ns = time.monotonic(), time.time_ns()
        return dead[0] == 0

    def _pump(self, stream: Stream) -> None:
        data = stream.read(CHUNK - 1)
        if data is None:
            return
        if self._life is Life.STARTING and stream is self._err:
            self._reason = data[: REASON - 1]
        for client in self._clients:
            if data and client.mode is Mode.WATCHING and not client.gone:
                client.offer(stream.channel, data)
        stream.take(data, last=not data)

    def _close_input(self) -> None:
        if self._input >= 0:
            os.close(self._input)
        self._input = -1
        for client in self._clients:
            if client.mode is Mode.FEEDING:
                client.close()

    def _feed(self, client: Client) -> None:
        """Takes from the client what the container takes."""
        data = client.peek()
        if data is None:
            return
        try:
            took = os.write(self._input, data) if data else 0
        except BlockingIOError:
            self._full = True
        except OSError:
            self._close_input()
        else:
            if took:
                client.took(took)
            elif "--stdin-once" in self._given.flags:
                self._close_input()
            else:
                client.close()

    def _welcome(self) -> None:
        try:
            connection, _ = self._door.accept()
        except OSError:
            return
        if len(self._clients) < CLIENTS:
            self._clients.append(Client(connection))
        else:
            connection.close()

    def _attend(self, client: Client, ready: int) -> None:
        asking = client.mode is Mode.ASKING
        late = asking and time.monotonic() > client.since + ASK
        if client.gone:
            return
        if ready and asking:
            self._serve(client)
        elif ready and client.mode is Mode.FEEDING:
            self._feed(client)
        elif ready & (select.POLLHUP | select.POLLERR) or late:
            client.close()
        elif ready:
            client.send_queue()

    def _serve(self, client: Client) -> None:
        request = client.request()
        simple: dict[str, Callable[[], str]] = {
            "status": self._describe,
            "reopen": self._reopen,
            "killall": self._kill_all,
        }
        match request.split(" ") if request is not None else None:
            case None:
                pass
            case ["wait"] if self._life is not Life.TOLD:
                client.mode = Mode.WAITING
            case ["wait"]:
                client.answer(self._describe())
            case ["stdin"] if self._input < 0:
                client.answer("error stdin is not open")
            case ["stdin" | "attach" as wish]:
                client.become(Mode.FEEDING if wish == "stdin" else Mode.WATCHING)
            case [wish] if wish in simple:
                client.answer(simple[wish]())
            case ["resize", columns, rows] if columns.isdecimal() and rows.isdecimal():
                client.answer(self._resize(int(columns), int(rows)))
            case _:
                client.answer("error unknown request")

    def _reopen(self) -> str:
        try:
            self._journal.reopen()
        except LookupError as error:
            return f"error {error}"
        except OSError as error:
            return f"error {why(error)}"
        return "ok"

    def _resize(self, columns: int, rows: int) -> str:
        if self._tty and self._out.fd >= 0:
            size = struct.pack("HHHH", rows & 0xFFFF, columns & 0xFFFF, 0, 0)
            fcntl.ioctl(self._out.fd, termios.TIOCSWINSZ, size)
            return "ok"
        return "error there is no terminal"

    def _kill_all(self) -> str:
        first = self._launcher or self._init
        count = int(first > 0 and kill(first, signal.SIGKILL))
        count += sum(kill_listed(f"{each}/cgroup.procs", groups=False) for each in self._given.cgroups)
        return f"ok {count}"

    def _finish(self) -> None:
        self._out.take(b"", last=True)
        self._err.take(b"", last=True)
        self._close_input()
        self._life = Life.TOLD
        self._record()
        for client in self._clients:
            if client.mode is Mode.WAITING:
                client.answer(self._describe())
            elif client.mode is Mode.WATCHING:
                client.offer(EXITED, self._describe().encode())
                client.close()
        self._clients = [each for each in self._clients if not each.gone]

    def _record(self) -> None:
        try:
            write_file("exit", self._describe(), durable=True)
        except OSError as error:
            self._recorded = error.errno == errno.ENOENT  # the directory is gone, and who would have read it
        else:
            self._recorded = True
