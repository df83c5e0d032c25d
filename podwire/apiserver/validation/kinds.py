"""The kinds that have rules of their own."""

from collections.abc import Mapping

from podwire.apiserver.validation.rules import Rules

RULES: Mapping[tuple[str, str], Rules] = {}
