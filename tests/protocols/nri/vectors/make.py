"""`python tests/protocols/nri/vectors/make.py`: write messages.json and calls.json anew after messages changed.

framing.json and the recording are not made: the one is written by hand, the other was recorded.
"""

import json
import sys
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.ttrpc import mux
from podwire.protocols.ttrpc.sides import Asking, answer

HERE = Path(__file__).parent
TIMEOUT = 2.0
METADATA = (("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)
UNSIGNED = {FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64}


def decoded(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def full(kind: type[Message], depth: int = 99) -> Message:
    """A message in which every field has a value, and every field of every message in it, so many levels down."""
    message = kind()
    for field in kind.DESCRIPTOR.fields if depth else ():
        _fill(message, field, depth - 1)
    return message


def _fill(message: Message, field: FieldDescriptor, depth: int) -> None:
    entry = field.message_type if field.message_type and field.message_type.GetOptions().map_entry else None
    if entry is not None:  # one key: maps have no order on the wire
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        held = getattr(message, field.name)
        if value.message_type:
            held[_scalar(key)].CopyFrom(full(value.message_type._concrete_class, depth))
        else:
            held[_scalar(key)] = _scalar(value)
    elif field.message_type:
        inner = full(field.message_type._concrete_class, depth)
        if field.is_repeated:
            getattr(message, field.name).extend([inner, field.message_type._concrete_class()])
        else:
            getattr(message, field.name).CopyFrom(inner)
    elif field.is_repeated:
        getattr(message, field.name).extend([_scalar(field), _scalar(field)])
    else:
        setattr(message, field.name, _scalar(field))


def _scalar(field: FieldDescriptor) -> Any:
    """A value that tells signed from unsigned and needs more than one byte."""
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return f"{field.name} ü"
        case FieldDescriptor.TYPE_BOOL:
            return True
        case FieldDescriptor.TYPE_ENUM:
            return field.enum_type.values[-1].number
        case kind if kind in UNSIGNED:
            return 1000 + field.number
    return -1000 - field.number


def kinds() -> list[type[Message]]:
    """Every message of NRI."""
    listed: list[Descriptor] = list(pb.DESCRIPTOR.message_types_by_name.values())
    return [item._concrete_class for item in listed]


def messages() -> list[dict[str, Any]]:
    return [
        {
            "message": kind.DESCRIPTOR.name,
            "hex": message.SerializeToString(deterministic=True).hex(),
            "decoded": decoded(message),
        }
        for kind in kinds()
        for message in [full(kind, depth=2)]
    ]


def calls() -> list[dict[str, Any]]:
    """Each call as it is asked and answered, numbered as in one conversation."""
    asking = {methods.RUNTIME_SERVICE: Asking(), methods.PLUGIN_SERVICE: Asking()}
    conversations = {methods.RUNTIME_SERVICE: mux.RUNTIME_SERVICE, methods.PLUGIN_SERVICE: mux.PLUGIN_SERVICE}
    events = []
    for method in (*methods.RUNTIME, *methods.PLUGIN):
        request, response = full(method.request), full(method.response)
        payload = request.SerializeToString(deterministic=True)
        stream, frame = asking[method.service].request(
            method.service, method.name, payload, timeout=TIMEOUT, metadata=METADATA
        )
        reply = answer(stream, response.SerializeToString(deterministic=True))
        conversation = conversations[method.service]
        there, back = ("P>R", "R>P") if conversation == mux.RUNTIME_SERVICE else ("R>P", "P>R")
        events.append(
            {
                "service": method.service,
                "method": method.name,
                "conversation": conversation,
                "stream": stream,
                "timeout_nano": int(TIMEOUT * 1e9),
                "metadata": [list(item) for item in METADATA],
                "request": {
                    "direction": there,
                    "message": method.request.DESCRIPTOR.name,
                    "hex": mux.pieces(conversation, frame).hex(),
                    "decoded": decoded(request),
                },
                "response": {
                    "direction": back,
                    "message": method.response.DESCRIPTOR.name,
                    "hex": mux.pieces(conversation, reply).hex(),
                    "decoded": decoded(response),
                },
            }
        )
    return events


def write(name: str, cases: list[dict[str, Any]]) -> None:
    """A JSON array with one case a line."""
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    HERE.joinpath(name).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def main() -> int:
    write("messages.json", messages())
    write("calls.json", calls())
    return 0


if __name__ == "__main__":
    sys.exit(main())
