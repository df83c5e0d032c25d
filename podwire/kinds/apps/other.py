"""ControllerRevision and PodTemplate: a template as it is stored."""

from typing import Any

from podwire.kinds.apps.template import container_cells
from podwire.kinds.field_checks import Object
from podwire.kinds.podspec import validation
from podwire.kinds.podspec.defaults import POD_TEMPLATE, default_template
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import NONE, Json, age_of, elements, label_text, name_of, number, part, text
from podwire.protocols.k8sapi.status import FieldError


def validate_pod_template(obj: Object) -> list[FieldError]:
    return validation.validate_template(obj.get("template") or {}, "template")


def default_pod_template(obj: dict[str, Any]) -> None:
    default_template(obj["template"])


def pod_template_row(obj: Json, _now: float) -> list[Any]:
    containers, images = container_cells(part(obj, "template"))
    return [name_of(obj), containers, images, label_text(part(obj, "template", "metadata"), "labels")]


def controller_revision_row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), _controller(obj), number(obj, "revision"), age_of(obj, now)]


def _controller(obj: Json) -> str:
    for owner in elements(part(obj, "metadata"), "ownerReferences"):
        if owner.get("controller") is True:
            group = text(owner, "apiVersion").rpartition("/")[0]
            kind = ".".join(filter(None, (text(owner, "kind"), group)))
            return f"{kind.lower()}/{text(owner, 'name')}"
    return NONE


CONTROLLER_REVISION = Strategy(
    group="apps",
    kind="ControllerRevision",
    columns="Name|Controller|Revision|Age",
    row=controller_revision_row,
)

POD_TEMPLATE_STRATEGY = Strategy(
    group="",
    kind="PodTemplate",
    parts=POD_TEMPLATE,
    default=default_pod_template,
    counts_generation=True,
    validate_create=validate_pod_template,
    returns_deleted=True,
    columns="Name|Containers|Images|Pod Labels",
    row=pod_template_row,
)
