"""What the built-in kinds look like: their types, and what the server tells clients about them."""

from podwire.kinds.schema.discovery import Discovery
from podwire.kinds.schema.openapi import OpenApi
from podwire.kinds.schema.types import Schemas

__all__ = ["Discovery", "OpenApi", "Schemas"]
