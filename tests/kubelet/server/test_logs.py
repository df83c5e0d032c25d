"""Following a log: over rotations, to the end of the container, without asking the runtime all the time."""

import asyncio
import contextlib

import pytest

from podwire.kubelet.server.limits import ServerLimits
from podwire.kubelet.server.log_lines import LogOptions
from podwire.kubelet.server.logs import Logs
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import Unavailable
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async

SOON = 30.0


def record(text, tag="F"):
    return f"2026-11-15T10:00:00Z stdout {tag} {text}\n"


class Writer:
    """Writes a log as a shim does."""

    def __init__(self, path):
        self.path = path
        self.file = path.open("a", buffering=1)

    def say(self, *texts):
        for text in texts:
            self.file.write(record(text))

    def rotate(self, time="20261115-100000"):
        self.path.rename(self.path.with_name(f"{self.path.name}.{time}"))
        old, self.file = self.file, self.path.open("a", buffering=1)
        old.close()

    def close(self):
        self.file.close()


@pytest.fixture
def writer(tmp_path):
    with contextlib.closing(Writer(tmp_path / "0.log")) as writer:
        yield writer


@pytest.fixture
async def reader(runtime, writer, seen):
    """`async with reader(follow=True) as log`: what a reader gets of the writer's log."""
    logs = Logs(runtime, ServerLimits(log_closed=(0.02, 0.1)))

    class Reader:
        def __init__(self, chunks):
            self.chunks = chunks
            self.text = ""

        async def until(self, text):
            async with asyncio.timeout(SOON):
                while text not in self.text:
                    self.text += (await anext(self.chunks)).decode()

        async def rest(self):
            async with asyncio.timeout(SOON):
                return self.text + "".join([chunk.decode() async for chunk in self.chunks])

    @contextlib.asynccontextmanager
    async def opened(**options):
        chunks = await logs.read(seen(log=writer.path), LogOptions(**options))
        async with contextlib.aclosing(chunks):
            yield Reader(chunks)

    yield opened
    logs.close()


async def test_without_follow_the_present_log_is_read(reader, writer, runtime):
    writer.say("a", "b", "c")
    async with reader(tail=2) as log:
        assert await log.rest() == "b\nc\n"
    assert runtime.asked == []


async def test_a_follower_reads_until_the_container_has_exited(reader, writer, runtime):
    writer.say("a")
    async with reader(follow=True) as log:
        await log.until("a\n")
        writer.say("b")
        await log.until("b\n")
        runtime.state = pb.CONTAINER_EXITED
        writer.say("c")
        writer.close()
        assert await log.rest() == "a\nb\nc\n"
    assert len(runtime.asked) <= 3, "the runtime is asked when the log is opened and left, not all the time"


async def test_a_runtime_that_learns_of_the_end_after_the_log_did(reader, writer, runtime):
    async with reader(follow=True) as log:
        coming = asyncio.create_task(log.rest())
        await runtime.looked.wait()
        runtime.looked.clear()
        writer.say("last words")
        writer.close()
        await runtime.looked.wait()
        runtime.state = pb.CONTAINER_EXITED
        assert await coming == "last words\n"


async def test_a_container_that_has_ended_is_read_to_its_end(reader, writer, runtime):
    runtime.state = pb.CONTAINER_EXITED
    writer.say("a", "b")
    async with reader(follow=True) as log:
        assert await log.rest() == "a\nb\n"


async def test_a_follower_continues_across_rotations(reader, writer, runtime):
    async with reader(follow=True) as log:
        for number in range(5):
            writer.say(f"line {number}")
            await log.until(f"line {number}\n")
            writer.rotate(f"20261115-10000{number}")
        writer.say("end")
        runtime.state = pb.CONTAINER_EXITED
        writer.close()
        assert await log.rest() == "line 0\nline 1\nline 2\nline 3\nline 4\nend\n"


async def test_a_rotation_before_the_watch_is_not_missed(reader, writer, runtime):
    writer.say("a")
    async with reader(follow=True) as log:  # the file is open, and watched when the first chunk is asked for
        writer.rotate()
        writer.say("b")
        await log.until("a\nb\n")
        writer.say("c")
        await log.until("c\n")


async def test_a_writer_that_comes_back_is_followed_on(reader, writer, runtime):
    async with reader(follow=True) as log:
        writer.say("a")
        await log.until("a\n")
        writer.close()
        writer.file = writer.path.open("a", buffering=1)
        writer.say("b")
        await log.until("b\n")
        runtime.removed = True
        writer.close()
        assert await log.rest() == "a\nb\n"


async def test_a_log_that_is_removed_with_its_container_ends(reader, writer, runtime):
    async with reader(follow=True) as log:
        writer.say("a")
        await log.until("a\n")
        runtime.removed = True
        writer.path.unlink()
        assert await log.rest() == "a\n"


async def test_a_follower_that_has_enough_is_done(reader, writer):
    async with reader(follow=True, limit=3) as log:
        writer.say("abcdef")
        assert await log.rest() == "abc"


async def test_a_runtime_that_does_not_answer_ends_nothing(reader, writer, runtime):
    runtime.refuses = Unavailable("it is being restarted")
    async with reader(follow=True) as log:
        writer.say("a")
        await log.until("a\n")
        runtime.refuses, runtime.state = None, pb.CONTAINER_EXITED
        writer.close()
        assert await log.rest() == "a\n"


async def test_the_end_of_a_container_is_noticed_although_its_runtime_was_away_for_long(reader, writer, runtime):
    async with reader(follow=True) as log:
        writer.say("a")
        await log.until("a\n")
        runtime.refuses, runtime.state = Unavailable("it is being restarted"), pb.CONTAINER_EXITED
        rest = asyncio.create_task(log.rest())
        before = len(runtime.asked)
        writer.close()
        await eventually_async(lambda: len(runtime.asked) > before + 3)
        runtime.refuses = None
        assert await rest == "a\n"


async def test_many_follow_one_log_and_leave_one_by_one(reader, writer, runtime):
    async with contextlib.AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(reader(follow=True)) for _ in range(20)]
        writer.say("a")
        await asyncio.gather(*(log.until("a\n") for log in logs))
        for item in logs[:19]:
            await item.chunks.aclose()
        writer.say("b")
        await logs[19].until("b\n")


async def test_a_log_that_is_not_there_is_named(reader, writer):
    writer.path.unlink()
    with pytest.raises(ApiError, match=r'failed to open log file ".*0\.log": no such file or directory'):
        async with reader():
            pass
