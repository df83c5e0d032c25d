"""The bytes that a scripted plugin sends, valid and invalid ones."""

from google.protobuf.message import Message

from podwire.nri.fake import actions
from podwire.nri.fake.actions import Action
from podwire.protocols.ttrpc import mux, sides, wire

_NO_MESSAGE = b"\xff" * 16


def answer(action: Action, stream: int, message: Message) -> bytes:
    """The bytes of the answer to a call on this stream; empty for actions that send nothing."""
    whole = sides.answer(stream, message.SerializeToString())
    match action:
        case actions.Fail(error):
            return _sent(sides.refuse(stream, error))
        case actions.Garble(data):
            return data
        case actions.Undecodable():
            return _sent(sides.answer(stream, _NO_MESSAGE))
        case actions.Oversize(size):
            return oversize(mux.PLUGIN_SERVICE, stream, wire.RESPONSE, size)
        case actions.OnStream(other):
            return _sent(sides.answer(other % 2**32, message.SerializeToString()))
        case actions.Twice():
            return _sent(whole) * 2
        case actions.InPieces(size):
            return in_pieces(mux.PLUGIN_SERVICE, whole, size)
        case actions.Silent() | actions.Disconnect() | actions.Leave():
            return b""
    return _sent(whole)


def request(action: Action, stream: int, frame: bytes) -> bytes:
    """The same for what the plugin itself asks."""
    match action:
        case actions.Garble(data):
            return data
        case actions.Undecodable():
            return mux.pieces(mux.RUNTIME_SERVICE, wire.encode(stream, wire.REQUEST, _NO_MESSAGE))
        case actions.Oversize(size):
            return oversize(mux.RUNTIME_SERVICE, stream, wire.REQUEST, size)
        case actions.OnStream(other):
            moved = wire.encode(other % 2**32, wire.REQUEST, frame[wire.HEADER.size :])
            return mux.pieces(mux.RUNTIME_SERVICE, moved)
        case actions.Twice():
            again = wire.encode(stream + 2, wire.REQUEST, frame[wire.HEADER.size :])
            return mux.pieces(mux.RUNTIME_SERVICE, frame) + mux.pieces(mux.RUNTIME_SERVICE, again)
        case actions.InPieces(size):
            return in_pieces(mux.RUNTIME_SERVICE, frame, size)
        case actions.Silent() | actions.Disconnect() | actions.Leave():
            return b""
    return mux.pieces(mux.RUNTIME_SERVICE, frame)


def oversize(conversation: int, stream: int, kind: int, size: int) -> bytes:
    """A frame that holds so many bytes, however many a frame may hold."""
    return in_pieces(conversation, wire.HEADER.pack(size, stream, kind, 0) + bytes(size), mux.MAX_PIECE)


def in_pieces(conversation: int, frame: bytes, size: int) -> bytes:
    cut = (frame[at : at + size] for at in range(0, len(frame), size))
    return b"".join(mux.HEADER.pack(conversation, len(piece)) + piece for piece in cut)


def _sent(frame: bytes) -> bytes:
    return mux.pieces(mux.PLUGIN_SERVICE, frame)
