"""The log: a container's output as CRI lines."""

import errno
import os
import stat
import time

LINE = 16 << 10
STDOUT, STDERR = 1, 2


class Journal:
    """The log file; what cannot be written is counted and dropped, in whole lines."""

    def __init__(self, path: str | None) -> None:
        self.path, self.lost, self._fd = path, 0, -1
        if path is not None:
            self.reopen()

    def reopen(self) -> None:
        if self.path is None:
            raise LookupError("there is no log")
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        fd = os.open(self.path, how, 0o640)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, self.path)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd

    def write(self, lines: list[bytes]) -> None:
        if self.path is None or not lines:
            return
        whole, done = b"".join(lines), 0
        try:
            size = os.lseek(self._fd, 0, os.SEEK_END)
            while done < len(whole):
                done += os.write(self._fd, whole[done:])
        except OSError:
            self.lost += len(lines)
            if done:
                os.ftruncate(self._fd, size)


class Stream:
    """One of the container's outputs, on its way into the log."""

    def __init__(self, fd: int, channel: int, journal: Journal) -> None:
        self.fd, self.channel, self._journal, self._rest = fd, channel, journal, b""
        os.set_blocking(fd, False)

    def read(self, size: int) -> bytes | None:
        """None: nothing came yet; empty: nothing will. A terminal tells its end as EIO."""
        try:
            return os.read(self.fd, size)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def take(self, data: bytes, *, last: bool) -> None:
        """Logs the lines of what was read; the rest of a line stays until more comes, or until this is the last."""
        text, at, lines = self._rest + data, 0, list[bytes]()
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        head = f"{date}.{nanoseconds:09}Z {'stdout' if self.channel == STDOUT else 'stderr'} ".encode()
        while at < len(text):
            newline = text.find(b"\n", at)
            end = len(text) if newline < 0 else newline
            if text[end - 1 : end] == b"\r" and end > at and (newline >= 0 or not last):
                end -= 1
            if end - at > LINE:
                lines.append(b"%bP %b\n" % (head, text[at : at + LINE]))
                at += LINE
            elif newline >= 0:
                lines.append(b"%bF %b\n" % (head, text[at:end]))
                at = newline + 1
            elif last:
                lines.append(b"%bP %b\n" % (head, text[at:]))
                at = len(text)
            else:
                break
        self._rest = text[at:]
        self._journal.write(lines)
        if last:
            self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
