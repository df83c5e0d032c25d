"""Codecs for records. Imports msgspec, which short-lived programs do not have time for."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from podwire.durable.records import Codec

T = TypeVar("T")


def json_codec(
    type_: type[T],
    *,
    enc_hook: Callable[[Any], Any] | None = None,
    dec_hook: Callable[[type, Any], Any] | None = None,
) -> Codec[T]:
    """JSON by msgspec, for structs, dataclasses and what they hold; the hooks are msgspec's."""
    encoder = msgspec.json.Encoder(enc_hook=enc_hook)
    decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(type_, dec_hook=dec_hook)

    def decode(data: bytes) -> T:
        try:
            return decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from error

    return Codec(encoder.encode, decode)
