"""Schemas of the built-in kinds: their shapes, discovery and OpenAPI documents."""

from podwire.kinds.schema.discovery import Discovery
from podwire.kinds.schema.openapi import OpenApi
from podwire.kinds.schema.types import Schemas

__all__ = ["Discovery", "OpenApi", "Schemas"]
