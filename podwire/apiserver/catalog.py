"""The built-in resources: the table of kinds joined with their schemas, defaults, rules and columns."""

from functools import partial
from typing import Any

from podwire.apiserver import defaults, tables, validation
from podwire.apiserver.apply.builtin import builtin_types
from podwire.apiserver.conversions import conversions
from podwire.apiserver.registry import Resource, storage_prefix
from podwire.apiserver.schema import Schemas
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind


def builtin_resources(schemas: Schemas) -> list[Resource]:
    """Everything that is served from the start."""
    converted = conversions()
    return [_resource(kind, schemas, converted.get(kind)) for kind in BUILTIN.all]


def _resource(kind: Kind, schemas: Schemas, conversion: Any) -> Resource:
    shape = schemas.shape(kind.api_version, kind.kind)
    if shape is None:
        raise LookupError(f"the installed schemas lack {kind.api_version} {kind.kind}")
    return Resource(
        kind=kind,
        shape=shape,
        prefix=storage_prefix(kind),
        conversion=conversion,
        default=partial(defaults.apply, kind),
        validate=partial(validation.create, kind),
        validate_update=partial(validation.update, kind),
        columns=partial(tables.definitions, kind),
        cells=partial(tables.cells, kind),
        typed=builtin_types().kind(kind.api_version, kind.kind),
    )
