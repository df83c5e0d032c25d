"""Any bytes into a connection: they are answered in whole pieces, or end the connection."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.ttrpc import mux, wire
from podwire.transports.mux_connection import MuxConnection, Services

WAIT = 30.0


class Paper(asyncio.Transport):
    """A connection to nowhere."""

    def __init__(self):
        super().__init__()
        self.written, self.over = bytearray(), False

    def write(self, data):
        self.written += data

    def is_closing(self):
        return self.over

    def abort(self):
        self.over = True

    def get_extra_info(self, name, default=None):
        return default


async def empty(_):
    return pb.RunPodSandboxResponse()


HEADERS = st.builds(
    wire.HEADER.pack,
    st.one_of(st.integers(0, 64), st.integers(0, 0xFFFFFFFF)),
    st.integers(0, 12),
    st.sampled_from([0, 1, 1, 1, 2, 3]),
    st.integers(0, 7),
)
SHREDS = st.lists(st.one_of(st.binary(max_size=64), HEADERS), max_size=12).map(b"".join)
PIECES = st.tuples(st.integers(0, 3), SHREDS).map(lambda each: mux.HEADER.pack(each[0], len(each[1])) + each[1])
TALK = st.lists(st.one_of(PIECES, PIECES, PIECES, st.binary(max_size=64)), max_size=10)


@settings(max_examples=60)
@given(TALK)
def test_any_bytes_are_answered_in_frames_or_end_the_connection(chunks):
    async def talk():
        services = Services(methods.PLUGIN, {"RunPodSandbox": empty})
        connection, paper = MuxConnection(services, asks_on=mux.RUNTIME_SERVICE, answers_on=mux.PLUGIN_SERVICE), Paper()
        connection.connection_made(paper)
        asked = asyncio.create_task(
            connection.call(methods.UPDATE_CONTAINERS, pb.UpdateContainersRequest(), within=WAIT)
        )
        await asyncio.sleep(0)
        for chunk in chunks:
            if not paper.over:
                connection.data_received(chunk)
        await asyncio.gather(*connection._handling)
        asked.cancel()
        await asyncio.wait([asked])
        if not asked.cancelled():
            asked.exception()
        connection.connection_lost(None)
        return bytes(paper.written)

    pieces = mux.Pieces()
    list(pieces.feed(asyncio.run(talk())))
    assert pieces.idle
