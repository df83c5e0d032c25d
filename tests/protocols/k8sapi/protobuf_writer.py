"""Writes Kubernetes' protobuf: the wire format by hand, and whole objects as Go's encoder does."""

import base64
import json
import random
import struct

from podwire.protocols.k8sapi import protobuf

TABLE = protobuf.load_table()


def varint(value):
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def sized(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def body(api_version, kind, raw):
    type_meta = sized(1, api_version.encode()) + sized(2, kind.encode())
    return protobuf.MAGIC + sized(1, type_meta) + sized(2, raw) + sized(3, b"") + sized(4, b"")


def decoded(api_version, kind, raw):
    found = protobuf.decode(body(api_version, kind, raw))
    assert found.pop("apiVersion") == api_version
    assert found.pop("kind") == kind
    return found


def encoded(obj):
    """The body of an object."""
    message = TABLE.messages[TABLE.kinds[obj["apiVersion"], obj["kind"]]]
    return body(obj["apiVersion"], obj["kind"], Writer().write(message, obj))


class Writer:
    """Makes objects of a message and writes them, with every plain field: two walks over the table of messages."""

    def __init__(self, seed=0):
        self.random = random.Random(seed)

    def make(self, message, depth=0):
        out = {}
        for item in message.parsed():
            if item.name == "+":
                out |= self.make(TABLE.messages[message.qualified(item.type)], depth)
            elif self.random.random() < (0.5 if depth < 3 else 0.1):
                value = self.member(item, message, depth)
                if item.keep or value not in ("", 0, False, {}):
                    out[item.name] = value
        return out

    def member(self, each, message, depth):
        if each.form == "[]":
            return [self.value(each, message, depth) for _ in range(self.random.randint(1, 2))]
        if each.form == "{}":
            return {self.random.choice(["a", "b", ""]): self.value(each, message, depth) for _ in range(2)}
        return self.value(each, message, depth)

    def value(self, each, message, depth):
        pick = self.random.choice
        simple = {
            "s": lambda: pick(["", "x", "é😀"]),
            "y": lambda: pick(["", "AP8="]),
            "i": lambda: pick([0, 1, -1, 300, 2**63 - 1, -(2**63)]),
            "b": lambda: pick([True, False]),
            "d": lambda: pick([0, 1, -2.5]),
            "Quantity": lambda: pick(["0", "1500m"]),
            "Time": lambda: pick(["1970-01-01T00:00:00Z", "2023-11-14T22:13:20Z"]),
            "MicroTime": lambda: pick(["1970-01-01T00:00:00.000000Z", "2023-11-14T22:13:20.000123Z"]),
            "IntOrString": lambda: pick([0, 80, -1, "", "web"]),
            "Raw": lambda: pick([0, "x", {}, [None], {"a": 1}]),
        }
        if each.type in simple:
            return simple[each.type]()
        inner = TABLE.messages[message.qualified(each.type)]
        if "=" in inner.text:
            chosen = pick(list(inner.parsed()))
            return self.member(chosen, inner, depth + 1)
        return self.make(inner, depth + 1)

    def write(self, message, value):
        out = b""
        for item in message.parsed():
            if item.name == "+":
                out += sized(item.number, self.write(TABLE.messages[message.qualified(item.type)], value))
            elif item.name == "=":
                out += self.write_itself(item, message, value)
            elif item.name in value:
                out += self.write_member(item, message, value[item.name])
            elif not item.keep:
                out += self.write_zero(item, message)
        return out

    def write_member(self, each, message, value):
        if each.form == "[]":
            return b"".join(self.write_value(each, message, one) for one in value)
        if each.form == "{}":
            plain = protobuf.Field(2, "value", each.type)
            return b"".join(
                sized(each.number, sized(1, key.encode()) + self.write_value(plain, message, one))
                for key, one in value.items()
            )
        return self.write_value(each, message, value)

    def write_itself(self, each, message, value):
        fits = {"[]": list, "": bool if each.type == "b" else dict}[each.form]
        strings = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if not isinstance(value, fits) or (each.form == "[]" and strings != (each.type == "s")):
            return b""
        return self.write_member(each, message, value)

    def write_zero(self, each, message):
        if each.type in ("i", "b"):
            return number(each.number, 0)
        return sized(each.number, b"")

    def write_value(self, each, message, value):
        simple = {
            "s": lambda: sized(each.number, value.encode()),
            "y": lambda: sized(each.number, base64.b64decode(value)),
            "i": lambda: number(each.number, value),
            "b": lambda: number(each.number, value),
            "d": lambda: varint(each.number << 3 | 1) + struct.pack("<d", value),
            "Quantity": lambda: sized(each.number, sized(1, value.encode())),
            "Time": lambda: sized(each.number, self.seconds(value) + number(2, 0)),
            "MicroTime": lambda: sized(each.number, self.seconds(value) + number(2, int(value[20:26]) * 1000)),
            "IntOrString": lambda: sized(each.number, self.int_or_string(value)),
            "Raw": lambda: sized(each.number, sized(1, json.dumps(value).encode())),
        }
        if each.type in simple:
            return simple[each.type]()
        return sized(each.number, self.write(TABLE.messages[message.qualified(each.type)], value))

    @staticmethod
    def seconds(text):
        return number(1, 0 if text.startswith("1970") else 1_700_000_000)

    @staticmethod
    def int_or_string(value):
        if isinstance(value, str):
            return number(1, 1) + number(2, 0) + sized(3, value.encode())
        return number(1, 0) + number(2, value) + sized(3, b"")
