"""The built-in resources: the table of kinds joined with their schemas, defaults, rules and columns."""

from functools import partial

from podwire.kinds import defaults, tables, validation
from podwire.kinds.apply.builtin import builtin_types
from podwire.kinds.conversions import conversions
from podwire.kinds.resource import Conversion, Resource, storage_prefix
from podwire.kinds.schema import Schemas
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import FieldError


def builtin_resources(schemas: Schemas) -> list[Resource]:
    """Everything that is served from the start."""
    converted = conversions()
    return [_resource(kind, schemas, converted.get(kind)) for kind in BUILTIN.all]


def _resource(kind: Kind, schemas: Schemas, conversion: Conversion | None) -> Resource:
    shape = schemas.shape(kind.api_version, kind.kind)
    if shape is None:
        raise LookupError(f"the installed schemas lack {kind.api_version} {kind.kind}")
    judged = conversion if conversion is not None and conversion.judged else None
    return Resource(
        kind=kind,
        shape=shape,
        prefix=storage_prefix(kind),
        conversion=conversion,
        default=partial(_default_as_stored, judged) if judged else partial(defaults.apply, kind),
        validate=partial(_validate_as_stored, judged) if judged else partial(validation.create, kind),
        validate_update=partial(_update_as_stored, judged) if judged else partial(validation.update, kind),
        columns=partial(tables.definitions, kind),
        cells=partial(tables.cells, kind),
        typed=builtin_types().kind(kind.api_version, kind.kind),
    )


def _default_as_stored(conversion: Conversion, obj: Object) -> None:
    converted = conversion.to_stored(obj)
    defaults.apply(conversion.stored, converted)
    filled = conversion.from_stored(converted)
    obj.clear()
    obj.update(filled)


def _validate_as_stored(conversion: Conversion, obj: Object) -> list[FieldError]:
    return validation.create(conversion.stored, conversion.to_stored(obj))


def _update_as_stored(conversion: Conversion, new: Object, old: Object, subresource: str) -> list[FieldError]:
    return validation.update(conversion.stored, conversion.to_stored(new), conversion.to_stored(old), subresource)
