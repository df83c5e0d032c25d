"""What the built-in kinds look like: their types, and what the server tells clients about them."""

from podwire.apiserver.schema.discovery import Discovery
from podwire.apiserver.schema.openapi import OpenApi
from podwire.apiserver.schema.types import Schemas

__all__ = ["Discovery", "OpenApi", "Schemas"]
