"""Records for real: sent as datagrams, collected, kept on disk, read while they are written."""

import asyncio
import contextlib
import itertools
import os
import select
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from podwire.interfaces import Hop
from podwire.trace.collector import Collector, Limits
from podwire.trace.follow import follow
from podwire.trace.pod_trace import PodTraces
from podwire.trace.record import Record, encode
from podwire.trace.recorder import Recorder
from podwire.trace.segments import SEGMENTS, Reader, Writer, segment_files
from podwire.transports import unix_sockets
from podwire.transports.datagrams import Receiver, Sender, flush

SOON = 30.0


def hop(call: int, outcome: str = "") -> Hop:
    return Hop(caller="Kubelet", callee="ContainerRuntime", method="Version", outcome=outcome, detail={"call": call})


@contextlib.asynccontextmanager
async def collecting(socket: Path, directory: Path, **options):
    receiver = await Receiver.open(socket)
    collector = Collector(directory, **options)
    running = asyncio.create_task(collector.run(receiver))
    try:
        yield collector
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await receiver.close()


@pytest.fixture
def socket(tmp_path):
    return tmp_path / "trace.sock"


@pytest.fixture
def recorder(socket):
    return Recorder(Sender(socket).send, "Kubelet", "n1")


async def read(directory: Path, count: int) -> list[Record]:
    """The records as soon as there are so many."""
    reader, found = Reader(directory), []
    async with asyncio.timeout(SOON):
        while len(found) < count:
            found += reader.more()
            await asyncio.sleep(0.005)
    return found


async def test_records_are_on_disk_soon(socket, tmp_path, recorder):
    async with collecting(socket, tmp_path / "trace"):
        recorder(hop(1))
        recorder(hop(1, "OK"))
        begun, ended = await read(tmp_path / "trace", 2)
    assert (begun.seq, ended.seq, begun.outcome, ended.outcome, begun.node) == (1, 2, "", "OK", "n1")
    assert begun.id == ended.id
    assert begun.sender.startswith("Kubelet-")


async def test_records_are_decoded_after_a_burst(socket, tmp_path, recorder):
    taken: asyncio.Queue[int] = asyncio.Queue()
    async with collecting(socket, tmp_path / "trace", limits=Limits(burst=SOON)) as collector:
        collector.subscribe(lambda records: taken.put_nowait(len(records)))
        for number in range(5):
            recorder(hop(number))
            await asyncio.sleep(Limits().poll / 2)
        assert taken.empty()
        async with asyncio.timeout(SOON):
            assert await taken.get() == 5


async def test_a_reader_gets_all_earlier_records(socket, tmp_path, recorder):
    async with collecting(socket, tmp_path / "trace", limits=Limits(burst=SOON)):
        chatter = asyncio.create_task(_chatter(recorder))
        recorder(hop(7, "OK"))
        assert await asyncio.to_thread(flush, socket, SOON)
        chatter.cancel()
        assert [item.outcome for item in Reader(tmp_path / "trace").more() if item.outcome] == ["OK"]


async def _chatter(recorder):
    for item in itertools.count(1000):
        recorder(hop(item))
        await asyncio.sleep(Limits().poll / 4)


async def test_a_reader_does_not_wait_without_a_collector(socket, tmp_path):
    assert not flush(socket, SOON), "there is none"
    receiver = await Receiver.open(socket)
    assert not flush(socket, 0.01), "it does not look"
    assert list(receiver.waiting()) == []
    assert receiver.flush_requested
    await receiver.close()
    left = await Receiver.open(tmp_path / "left.sock")
    asking = asyncio.create_task(asyncio.to_thread(flush, tmp_path / "left.sock", SOON))
    async with asyncio.timeout(SOON):
        await asyncio.get_running_loop().run_in_executor(None, select.select, [left.fileno()], [], [])
    await left.close()
    assert await asking, "one that ends keeps nobody waiting"


async def test_records_do_not_wait_for_ever(socket, tmp_path, recorder):
    async with collecting(socket, tmp_path / "trace"):
        reader, found = Reader(tmp_path / "trace"), []
        async with asyncio.timeout(SOON):
            for number in range(1000):
                recorder(hop(number))
                await asyncio.sleep(Limits().poll / 4)
                if found := list(reader.more()):
                    break
    assert found, "although there was no end to it"


async def test_a_burst_is_stored_completely(socket, tmp_path, recorder):
    receiver = await Receiver.open(socket)
    for number in range(1000):
        recorder(hop(number))
    assert len(list(receiver.waiting())) == 1000
    await receiver.close()


async def test_datagrams_that_do_not_fit_are_lost_and_noticed(socket, tmp_path, recorder):
    receiver = await Receiver.open(socket)
    for number in range(20_000):
        recorder(hop(number))  # never waits
    first = list(receiver.waiting())
    recorder(hop(1, "OK"))
    collector = Collector(tmp_path / "trace")
    collector.take([*first, *receiver.waiting()])
    await receiver.close()
    numbers = [item.seq for item in Reader(tmp_path / "trace").more()]
    assert numbers[:-1] == list(range(1, len(first) + 1))
    assert numbers[-1] == 20_001
    assert len(first) < 20_000


async def test_a_recorder_works_without_a_collector_and_connects_once_there_is_one(socket, tmp_path, recorder):
    recorder(hop(1))
    async with collecting(socket, tmp_path / "trace"):
        recorder(hop(2))
        [found] = await read(tmp_path / "trace", 1)
    assert found.seq == 2


async def test_a_collector_continues_where_the_previous_one_stopped(socket, tmp_path, recorder):
    for number in (1, 2):
        async with collecting(socket, tmp_path / "trace"):
            recorder(hop(number))
            await read(tmp_path / "trace", number)
    assert [item.seq for item in Reader(tmp_path / "trace").more()] == [1, 2]
    assert len(segment_files(tmp_path / "trace")) == 1


async def test_records_survive_a_killed_collector_and_another_continues(socket, tmp_path, recorder, appeared):
    program = (
        "import asyncio, pathlib, sys\n"
        "from podwire.cluster.tracing import CollectorOptions, collect\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "asyncio.run(collect(CollectorOptions(socket=here / 'trace.sock', directory=here / 'trace')))\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(tmp_path))
    await appeared(socket)
    recorder(hop(1))
    await read(tmp_path / "trace", 1)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    [file] = segment_files(tmp_path / "trace")
    with file.open("ab") as torn:
        torn.write(b'{"id":"torn')
    async with collecting(socket, tmp_path / "trace"):
        recorder(hop(2))
        found = await read(tmp_path / "trace", 2)
    assert [item.seq for item in found] == [1, 2]


async def test_there_is_one_collector_at_a_socket(socket, tmp_path):
    async with collecting(socket, tmp_path / "trace"):
        with pytest.raises(unix_sockets.CannotListen, match=r"another server|in use"):
            await Receiver.open(socket)
    assert not socket.exists()


async def test_invalid_datagrams_are_skipped(socket, tmp_path, recorder, caplog):
    sender = Sender(socket)
    async with collecting(socket, tmp_path / "trace"):
        for item in (b"", b"{", b"[]", b'{"id": 1}', b"\xff", encode({"id": "a", "seq": 1}), DEEP):
            sender.send(item)
        recorder(hop(1))
        assert len(await read(tmp_path / "trace", 1)) == 1
    assert "trace datagrams were rejected" in caplog.text


DEEP = encode(
    Record(id="a.1", seq=1, time=0.0, caller="a", callee="b", method="ADD x", detail={"code": 0, "stdout": "[" * 9000})
)


def lines(count: int, size: int = 100) -> list[bytes]:
    detail = {"filler": "x" * size}
    return [
        encode(Record(id="a.1", seq=number, time=0.0, caller="a", callee="b", method="m", detail=detail))
        for number in range(count)
    ]


def test_the_oldest_records_are_dropped_for_the_newest(tmp_path):
    writer = Writer(tmp_path, limit=SEGMENTS * 2000)
    for line in lines(500):
        writer.write([line])
    writer.close()
    kept = [item.seq for item in Reader(tmp_path).more()]
    assert kept == list(range(kept[0], 500))
    assert kept[0] > 0
    assert len(segment_files(tmp_path)) == SEGMENTS
    assert sum(file.stat().st_size for file in segment_files(tmp_path)) <= SEGMENTS * 2000


def test_many_records_at_once_fill_many_segments(tmp_path):
    writer = Writer(tmp_path, limit=SEGMENTS * 2000)
    writer.write(lines(40))
    writer.close()
    assert [item.seq for item in Reader(tmp_path).more()] == list(range(40))
    assert max(file.stat().st_size for file in segment_files(tmp_path)) <= 2000


def test_records_are_for_their_owner_alone(tmp_path):
    Writer(tmp_path / "trace").close()
    assert (tmp_path / "trace").stat().st_mode & 0o777 == 0o700
    assert segment_files(tmp_path / "trace")[0].stat().st_mode & 0o777 == 0o600


def test_a_reader_reads_on_and_takes_no_half_line(tmp_path):
    writer, reader = Writer(tmp_path), Reader(tmp_path)
    one, two = lines(2)
    writer.write([one])
    assert [item.seq for item in reader.more()] == [0]
    os.write(writer._file, two[:10])
    assert list(reader.more()) == []
    os.write(writer._file, two[10:] + b"\n")
    assert [item.seq for item in reader.more()] == [1]
    writer.close()


async def test_a_trace_is_drawn_while_it_happens(tmp_path, records):
    writer = Writer(tmp_path)
    drawn = follow(tmp_path, "default", "web", 140)
    writer.write([encode(record) for record in records[:15]])
    seen: list[str] = []
    async with asyncio.timeout(SOON), contextlib.aclosing(drawn):
        async for line in drawn:
            seen.append(line)
            if "RunPodSandbox" in line:
                writer.write([encode(record) for record in records[15:]])
            if "Running after" in line:
                break
    writer.close()
    assert seen[0] == "pod default/web"
    assert sum("RunPodSandbox" in item for item in seen) == 1
    traces = PodTraces()
    traces.learn(records)
    assert sum("▶" in item or "◀" in item or "✕" in item or "╯" in item for item in seen) == len(traces.all()[0].arrows)


async def test_a_late_participant_gets_a_lane_below_a_new_header(tmp_path, records):
    writer = Writer(tmp_path)
    late = msgspec.structs.replace(records[14], id="Kubelet-1.9", seq=99, callee="DevicePlugin", method="Allocate")
    writer.write([encode(item) for item in [*records, late]])
    writer.close()
    seen: list[str] = []
    async with asyncio.timeout(SOON), contextlib.aclosing(follow(tmp_path, "default", "web", 160)) as drawn:
        async for line in drawn:
            seen.append(line)
            if "Running after" in line:
                break
    heads = [item for item in seen if "ContainerRuntime" in item and "time" in item]
    assert ["DevicePlugin" in head for head in heads] == [False, True]
