"""The bytes by which a scripted plugin answers, right ones and wrong ones."""

from google.protobuf.message import Message

from podwire.nri.fake import deeds
from podwire.nri.fake.deeds import Deed
from podwire.protocols.ttrpc import mux, sides, wire

_NO_MESSAGE = b"\xff" * 16


def answer(deed: Deed, stream: int, message: Message) -> bytes:
    """What goes onto the socket for a call on this stream; empty for deeds that send nothing."""
    whole = sides.answer(stream, message.SerializeToString())
    match deed:
        case deeds.Fail(error):
            return _sent(sides.refuse(stream, error))
        case deeds.Garble(data):
            return data
        case deeds.Undecodable():
            return _sent(sides.answer(stream, _NO_MESSAGE))
        case deeds.Oversize(size):
            return oversize(mux.PLUGIN_SERVICE, stream, wire.RESPONSE, size)
        case deeds.OnStream(other):
            return _sent(sides.answer(other % 2**32, message.SerializeToString()))
        case deeds.Twice():
            return _sent(whole) * 2
        case deeds.InPieces(size):
            return in_pieces(mux.PLUGIN_SERVICE, whole, size)
        case deeds.Silent() | deeds.Disconnect() | deeds.Leave():
            return b""
    return _sent(whole)


def request(deed: Deed, stream: int, frame: bytes) -> bytes:
    """The same for what the plugin itself asks."""
    match deed:
        case deeds.Garble(data):
            return data
        case deeds.Undecodable():
            return mux.pieces(mux.RUNTIME_SERVICE, wire.encode(stream, wire.REQUEST, _NO_MESSAGE))
        case deeds.Oversize(size):
            return oversize(mux.RUNTIME_SERVICE, stream, wire.REQUEST, size)
        case deeds.OnStream(other):
            moved = wire.encode(other % 2**32, wire.REQUEST, frame[wire.HEADER.size :])
            return mux.pieces(mux.RUNTIME_SERVICE, moved)
        case deeds.Twice():
            again = wire.encode(stream + 2, wire.REQUEST, frame[wire.HEADER.size :])
            return mux.pieces(mux.RUNTIME_SERVICE, frame) + mux.pieces(mux.RUNTIME_SERVICE, again)
        case deeds.InPieces(size):
            return in_pieces(mux.RUNTIME_SERVICE, frame, size)
        case deeds.Silent() | deeds.Disconnect() | deeds.Leave():
            return b""
    return mux.pieces(mux.RUNTIME_SERVICE, frame)


def oversize(conversation: int, stream: int, kind: int, size: int) -> bytes:
    """A frame that holds so many bytes, however many a frame may hold."""
    return in_pieces(conversation, wire.HEADER.pack(size, stream, kind, 0) + bytes(size), mux.MAX_PIECE)


def in_pieces(conversation: int, frame: bytes, size: int) -> bytes:
    cut = (frame[at : at + size] for at in range(0, len(frame), size))
    return b"".join(mux.HEADER.pack(conversation, len(each)) + each for each in cut)


def _sent(frame: bytes) -> bytes:
    return mux.pieces(mux.PLUGIN_SERVICE, frame)
