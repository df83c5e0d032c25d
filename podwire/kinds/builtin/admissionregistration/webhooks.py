"""Webhook configurations: the form of their webhooks, and whether their match conditions can be compiled."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from podwire.kinds.builtin.admissionregistration.match_resources import rule_errors
from podwire.kinds.builtin.admissionregistration.validating_policy import conditions_errors
from podwire.kinds.field_checks import Choice, Errors, Object, label_selector, named
from podwire.kinds.policies.policy import Compiler
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, duplicate, invalid, required

REVIEW_VERSIONS = ("v1", "v1beta1")
LONGEST_TIMEOUT = 30
_FAILURE_POLICIES = Choice(("Fail", "Ignore"))
_MATCH_POLICIES = Choice(("Equivalent", "Exact"))
_SIDE_EFFECTS = Choice(("None", "NoneOnDryRun"))
_REINVOCATIONS = Choice(("IfNeeded", "Never"))
_FORM = "; desired format: https://host[/path]"


def create(obj: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, webhook in enumerate(obj.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        _webhook(webhook, path, errors)
        _review_versions(webhook.get("admissionReviewVersions") or (), f"{path}.admissionReviewVersions", errors)
        name = webhook.get("name") or ""
        if name and name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
    return errors


def _webhook(webhook: Object, path: str, errors: Errors) -> None:
    qualified_name(webhook.get("name") or "", f"{path}.name", errors)
    for index, rule in enumerate(webhook.get("rules") or ()):
        rule_errors(rule, f"{path}.rules[{index}]", errors)
    _FAILURE_POLICIES.check(webhook.get("failurePolicy", "Fail"), f"{path}.failurePolicy", errors)
    _MATCH_POLICIES.check(webhook.get("matchPolicy", "Exact"), f"{path}.matchPolicy", errors)
    if webhook.get("sideEffects") is None:
        errors.append(required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun"))
    else:
        _SIDE_EFFECTS.check(webhook["sideEffects"], f"{path}.sideEffects", errors)
    seconds = webhook.get("timeoutSeconds", 1)
    if not 1 <= seconds <= LONGEST_TIMEOUT:
        detail = f"the timeout value must be between 1 and {LONGEST_TIMEOUT} seconds"
        errors.append(invalid(f"{path}.timeoutSeconds", seconds, detail))
    for word in ("namespaceSelector", "objectSelector"):
        label_selector(webhook.get(word), f"{path}.{word}", errors)
    if "reinvocationPolicy" in webhook:
        _REINVOCATIONS.check(webhook["reinvocationPolicy"], f"{path}.reinvocationPolicy", errors)
    client_config(webhook.get("clientConfig") or {}, f"{path}.clientConfig", errors)
    conditions_errors(webhook.get("matchConditions") or (), Compiler(params=False), f"{path}.matchConditions", errors)


def _review_versions(versions: Sequence[str], path: str, errors: Errors) -> None:
    """Checks the versions of AdmissionReview that a webhook understands; others than ours are allowed beside them."""
    if not versions:
        errors.append(required(path, f"must specify one of {', '.join(REVIEW_VERSIONS)}"))
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            errors.append(invalid(f"{path}[{index}]", version, "duplicate version"))
            continue
        named(names.dns1035_label, version, f"{path}[{index}]", errors)
    if not set(versions) & set(REVIEW_VERSIONS):
        errors.append(invalid(path, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}"))


def qualified_name(name: str, path: str, errors: Errors) -> None:
    """Checks a domain name of at least three labels."""
    if not name:
        errors.append(required(path))
    elif problems := names.dns_subdomain(name):
        errors.append(invalid(path, name, ",".join(problems)))
    elif name.count(".") < 2:
        errors.append(invalid(path, name, "should be a domain with at least three segments separated by dots"))


def client_config(config: Object, path: str, errors: Errors) -> None:
    """Checks where a webhook of any kind is: by URL or by Service."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        errors.append(required(path, "exactly one of url or service is required"))
    elif url is not None:
        _url(url, f"{path}.url", errors)
    else:
        service_reference(service or {}, f"{path}.service", errors)


def _url(text: str, path: str, errors: Errors) -> None:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - reading it checks it
    except ValueError as error:
        errors.append(required(path, f"url must be a valid URL: {error}{_FORM}"))
        return
    if parts.scheme != "https":
        errors.append(invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    if not parts.netloc:
        errors.append(invalid(path, "", f"host must be specified{_FORM}"))
    if "@" in parts.netloc:
        user = parts.netloc.rpartition("@")[0]
        errors.append(invalid(path, user, "user information is not permitted in the URL"))
    if parts.fragment:
        errors.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        errors.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))


def service_reference(service: Object, path: str, errors: Errors) -> None:
    errors += [required(f"{path}.{word}") for word in ("name", "namespace") if not service.get(word)]
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        errors.append(invalid(f"{path}.port", port, f"port is not valid: {names.between(1, 65535)}"))
    url_path = service.get("path") or ""
    if url_path in ("", "/"):
        return
    where = f"{path}.path"
    if url_path == "//":
        errors.append(invalid(where, url_path, "segment[0] may not be empty"))
        return
    if not url_path.startswith("/"):
        errors.append(invalid(where, url_path, "must start with a '/'"))
    for index, segment in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not segment:
            errors.append(invalid(where, url_path, f"segment[{index}] may not be empty"))
            continue
        errors += [invalid(where, url_path, f"segment[{index}]: {problem}") for problem in names.dns_subdomain(segment)]
