"""What stands on an arrow: the call in few words, its answer in fewer. Pure."""

from http import HTTPStatus
from typing import Any

from podwire.trace.record import Record

_NOISE = ("fieldManager", "fieldValidation", "allowWatchBookmarks", "resourceVersion", "timeoutSeconds", "timeout",
          "sendInitialEvents", "resourceVersionMatch", "limit", "force")  # fmt: skip
"""Parameters of requests that say nothing about the way of a pod."""

_LONGEST_ERROR = 120


def label_of(record: Record) -> str:
    detail = record.detail if isinstance(record.detail, dict) else {}
    if record.begins:
        return _call(record.method, detail)
    if record.is_event:
        return f"{detail.get('type', '')} {named(detail)}{_state(detail)}".strip()
    return _reply(record, detail)


def named(detail: dict[str, Any]) -> str:
    return f"{detail.get('namespace', '')}/{detail.get('name', '')}" if detail.get("name") else ""


def _call(method: str, detail: dict[str, Any]) -> str:
    verb, _, rest = method.partition(" ")
    if rest.startswith("/registry/"):
        return f"{verb} {rest.removeprefix('/registry/')}{_state(detail)}"
    if rest.startswith("/"):
        path, _, query = rest.partition("?")
        kept = "&".join(each for each in query.split("&") if each and each.partition("=")[0] not in _NOISE)
        return f"{verb} {path}?{kept}" if kept else f"{verb} {path}"
    request = detail.get("request")
    about = _container(request) if isinstance(request, dict) else ""
    return f"{method} {about}".rstrip()


def _container(request: dict[str, Any]) -> str:
    """The container or image that a call of CRI or NRI is about."""
    if isinstance(request.get("container"), str):
        return str(request["container"])
    name = _at(request, "config", "metadata", "name") if "sandbox_config" in request else None
    image = _at(request, "image", "image")
    return str(name or image or "")


def _state(detail: dict[str, Any]) -> str:
    told = [str(detail[name]) for name in ("phase",) if detail.get(name)]
    if detail.get("nodeName"):
        told.append(f"on {detail['nodeName']}")
    return f" ({', '.join(told)})" if told else ""


def _reply(record: Record, detail: dict[str, Any]) -> str:
    if record.outcome.isdecimal():
        code = int(record.outcome)
        phrase = HTTPStatus(code).phrase if code in set(HTTPStatus) else ""
        return f"{code} {phrase}{_state(detail)}".strip()
    if detail.get("error"):
        return f"{record.outcome}: {str(detail['error'])[:_LONGEST_ERROR]}"
    stdout = detail.get("stdout")
    if isinstance(stdout, dict):
        return f"{record.outcome} {_printed(stdout)}".strip()
    return record.outcome


def _printed(result: dict[str, Any]) -> str:
    """What a CNI plugin answered: addresses, or what it did not like."""
    addresses = [str(each.get("address", "")) for each in result.get("ips") or () if isinstance(each, dict)]
    return ", ".join(addresses) or str(result.get("msg", ""))[:_LONGEST_ERROR]


def _at(value: Any, *path: str) -> Any:
    for each in path:
        value = value.get(each) if isinstance(value, dict) else None
    return value
