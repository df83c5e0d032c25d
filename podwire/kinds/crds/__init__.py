"""CustomResourceDefinitions: validated, named, and compiled to what the API server needs to serve their objects.

All of it is pure: a definition or an object in, a value out.
"""

from podwire.kinds.crds.columns import columns_of
from podwire.kinds.crds.naming import established
from podwire.kinds.crds.served_kinds import kinds_of, scale_path, selectable_fields, storage_version
from podwire.kinds.crds.structural import compile_schema

__all__ = [
    "columns_of",
    "compile_schema",
    "established",
    "kinds_of",
    "scale_path",
    "selectable_fields",
    "storage_version",
]
