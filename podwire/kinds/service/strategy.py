"""The Strategy of Service."""

from podwire.kinds.service import defaults, table, validate
from podwire.kinds.strategy import Strategy, selectable
from podwire.objects import names

SERVICE = Strategy(
    group="",
    kind="Service",
    check_name=names.dns_label,
    stored_as="services/specs",
    parts={"spec": {}, "status": {"loadBalancer": {}}},
    default=defaults.default,
    allow_create_on_update=True,
    validate_create=validate.create,
    validate_update=validate.update,
    returns_deleted=True,
    selectable=(selectable("spec.clusterIP"), selectable("spec.type")),
    columns="Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector*",
    row=table.row,
)
