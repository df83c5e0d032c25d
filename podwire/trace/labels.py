"""Labels of arrows: a call in a few words, its reply in fewer. Pure."""

from http import HTTPStatus
from typing import Any

from podwire.trace.record import Record

_NOISE = ("fieldManager", "fieldValidation", "allowWatchBookmarks", "resourceVersion", "timeoutSeconds", "timeout",
          "sendInitialEvents", "resourceVersionMatch", "limit", "force")  # fmt: skip
"""Query parameters that are left out of labels."""

_LONGEST_ERROR = 120
_SHORT = 12
"""Characters of a container id that are shown."""
_MOST_NAMES = 9


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
        kept = "&".join(part for part in query.split("&") if part and part.partition("=")[0] not in _NOISE)
        return f"{verb} {path}?{kept}" if kept else f"{verb} {path}"
    request = detail.get("request")
    about = _container(request) if isinstance(request, dict) else ""
    about = about or ", ".join([*_names(detail.get("claims")), *_device_ids(request)])
    return f"{method} {about}".rstrip()


def _container(request: dict[str, Any]) -> str:
    """Returns the container or the image that a CRI or NRI call is about."""
    if isinstance(request.get("container"), str):
        return str(request["container"])
    name = _at(request, "config", "metadata", "name") if "sandbox_config" in request else None
    image = _at(request, "image", "image")
    return str(name or image or "")


def _state(detail: dict[str, Any]) -> str:
    facts = [str(detail["phase"])] if detail.get("phase") else []
    if detail.get("nodeName"):
        facts.append(f"on {detail['nodeName']}")
    facts += _names(detail.get("devices"))
    return f" ({', '.join(facts)})" if facts else ""


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
    return f"{record.outcome} {_answered(detail)}".strip()


def _answered(detail: dict[str, Any]) -> str:
    """Summarizes the result of a call: devices, addresses, ids, or the adjustment of an NRI plugin."""
    response = detail.get("response")
    if not isinstance(response, dict):
        return ", ".join(_names(detail.get("devices")))
    adjust = response.get("adjust")
    adjusted = sorted(name for name, value in adjust.items() if value) if isinstance(adjust, dict) else []
    if adjusted:
        return f"adjusts {', '.join(adjusted)}"
    ip = _at(response, "status", "network", "ip")
    made = response.get("container_id") or response.get("pod_sandbox_id")
    short = str(made)[:_SHORT] if made else ""
    return ", ".join(_names(detail.get("devices"))) or str(ip or "") or short


def _device_ids(request: Any) -> list[str]:
    """Returns the device ids of an Allocate request."""
    requests = request.get("container_requests") if isinstance(request, dict) else None
    if not isinstance(requests, list):
        return []
    ids = [
        name for container in requests if isinstance(container, dict) for name in _names(container.get("devices_ids"))
    ]
    return ids[:_MOST_NAMES]


def _names(value: Any) -> list[str]:
    return [str(name) for name in value[:_MOST_NAMES]] if isinstance(value, list) else []


def _printed(result: dict[str, Any]) -> str:
    """Summarizes the result of a CNI plugin: its addresses, or its error."""
    ips = result.get("ips")
    addresses = [str(ip.get("address", "")) for ip in ips if isinstance(ip, dict)] if isinstance(ips, list) else []
    return ", ".join(addresses) or str(result.get("msg", ""))[:_LONGEST_ERROR]


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
