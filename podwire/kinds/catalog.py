"""The built-in resources: each kind of the table joined with its schema and Strategy."""

from functools import partial

from podwire.kinds.apply.builtin import builtin_types
from podwire.kinds.resource import PREFIX, Resource, storage_prefix
from podwire.kinds.schema import Schemas
from podwire.kinds.stored import Object
from podwire.kinds.strategies import strategy_of
from podwire.kinds.strategy import Conversion, Strategy
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import FieldError


def builtin_resources(schemas: Schemas) -> list[Resource]:
    """Returns the resources that are served from the start."""
    return [_resource(kind, schemas) for kind in BUILTIN.all]


def storage_prefixes(name: str) -> list[str]:
    """Returns the prefixes of the storage keys of a resource as an EncryptionConfiguration names it.

    | name | resources |
    |---|---|
    | `secrets`, `deployments.apps` | one |
    | `*.`, `*.apps` | all of the core group, all of a group |
    | `*.*` | all |

    Raises ValueError with the reason. A group that is not built in is one of custom resources.
    """
    resource, dot, group = name.partition(".")
    if name == "*":
        raise ValueError("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")
    if group == "events.k8s.io":
        raise ValueError(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. "
            "Use 'events' instead in the config file"
        )
    if name != name.lower():
        raise ValueError("resource name should not contain capital letters")
    if name == "*.*":
        return [PREFIX]
    kinds = [kind for kind in BUILTIN.all if kind.group == group and resource in (kind.resource, "*")]
    prefixes = {storage_prefix(kind, strategy_of(kind)) for kind in kinds if "create" in kind.verbs}
    known = group in {kind.group for kind in BUILTIN.all}
    if not known:
        prefixes.add(f"{PREFIX}{group}/" if resource == "*" else f"{PREFIX}{group}/{resource}/")
    if not prefixes:
        raise ValueError(f"{name!r} is not a resource that is stored" + ("" if dot else "; as in secrets"))
    return sorted(prefixes)


def _resource(kind: Kind, schemas: Schemas) -> Resource:
    shape = schemas.shape(kind.api_version, kind.kind)
    if shape is None:
        raise LookupError(f"the installed schemas lack {kind.api_version} {kind.kind}")
    strategy = strategy_of(kind)
    conversion = strategy.conversions.get(kind.version)
    as_stored = conversion if conversion is not None and conversion.validated_as_stored else None
    return Resource(
        kind=kind,
        strategy=strategy,
        shape=shape,
        prefix=storage_prefix(kind, strategy),
        conversion=conversion,
        default=partial(_default_as_stored, strategy, as_stored) if as_stored else strategy.apply_defaults,
        validate=(
            partial(_validate_as_stored, strategy, as_stored) if as_stored else partial(strategy.errors_on_create, kind)
        ),
        validate_update=(partial(_update_as_stored, strategy, as_stored) if as_stored else strategy.errors_on_update),
        columns=strategy.column_definitions,
        cells=strategy.row,
        selectable=strategy.selectable,
        warning=strategy.deprecated,
        typed=builtin_types().kind(kind.api_version, kind.kind),
    )


def _default_as_stored(strategy: Strategy, conversion: Conversion, obj: Object) -> None:
    converted = conversion.to_stored(obj)
    strategy.apply_defaults(converted)
    filled = conversion.from_stored(converted)
    obj.clear()
    obj.update(filled)


def _validate_as_stored(strategy: Strategy, conversion: Conversion, obj: Object) -> list[FieldError]:
    return strategy.errors_on_create(conversion.stored, conversion.to_stored(obj))


def _update_as_stored(
    strategy: Strategy, conversion: Conversion, new: Object, old: Object, subresource: str
) -> list[FieldError]:
    return strategy.errors_on_update(conversion.to_stored(new), conversion.to_stored(old), subresource)
