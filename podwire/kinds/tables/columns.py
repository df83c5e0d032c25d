"""What a table's columns are called and hold, as the first part of every Table answer."""

from typing import Any

from podwire.protocols.k8sapi.kinds import Column, Kind

_INTEGERS = {
    "Active",
    "Allowed Disruptions",
    "Available",
    "Current",
    "Desired",
    "Drivers",
    "Mutations",
    "Ready",
    "Up-to-date",
    "Validations",
    "Value",
    "Webhooks",
}
_BOOLEANS = {
    "Attached",
    "AttachRequired",
    "Global-Default",
    "PodInfoOnMount",
    "RequiresRepublish",
    "StorageCapacity",
    "Suspend",
}
_AS_TEXT = {
    ("", "pods", "Ready"),
    ("apiregistration.k8s.io", "apiservices", "Available"),
    ("apps", "deployments", "Available"),
    ("apps", "deployments", "Ready"),
    ("apps", "deployments", "Up-to-date"),
    ("apps", "statefulsets", "Ready"),
}
"""Columns that are text here though numbers elsewhere; kubectl aligns by this."""

_DESCRIPTIONS = {
    "Age": "How long ago the object was created.",
    "Containers": "The names of the template's containers.",
    "Created At": "When the object was created.",
    "Images": "The images of the template's containers.",
    "Name": "The name of the object, unique in its namespace.",
    "Restarts": "How often the pod's containers came back, and how long ago the last one did.",
    "Selector": "The labels that select the pods.",
    "Status": "Where the object is in its life.",
}

PLAIN = (Column("Name"), Column("Created At"))
"""The columns of kinds that have none of their own."""


def definition(name: str, kind: str, *, wide: bool = False, form: str = "", description: str = "") -> dict[str, Any]:
    """A TableColumnDefinition."""
    return {
        "name": name,
        "type": kind,
        "format": form,
        "description": description or _DESCRIPTIONS.get(name, ""),
        "priority": 1 if wide else 0,
    }


def of_column(kind: Kind, column: Column) -> dict[str, Any]:
    return definition(
        column.name,
        _type(kind, column.name),
        wide=column.wide,
        form="name" if column.name == "Name" else "",
    )


def _type(kind: Kind, column: str) -> str:
    if column == "Created At":
        return "date"
    if column in _BOOLEANS:
        return "boolean"
    if column in _INTEGERS and (kind.group, kind.resource, column) not in _AS_TEXT:
        return "integer"
    return "string"
