"""Volumes that show API objects as files: secret, configMap, downwardAPI and projected."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from podwire.kinds.field_checks import Choice, Errors, Object, file_mode, label_selector, local
from podwire.kinds.podspec.env_rules import VOLUME_FIELDS, field_ref, resource_field_ref
from podwire.objects import names
from podwire.protocols.k8sapi.status import forbidden, invalid, required

_SHORTEST_TOKEN = 600
_LONGEST_TOKEN = 2**32
_SHORTEST_CERTIFICATE = 3600
_LONGEST_CERTIFICATE = 91 * 86400
_LONGEST_KUBERNETES_CERTIFICATE = 86400
_KEY_TYPES = Choice(("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"))
_CERTIFICATE_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")


def secret(source: Object, path: str, errors: Errors) -> None:
    if not source.get("secretName"):
        errors.append(required(f"{path}.secretName"))
    file_mode(source.get("defaultMode"), f"{path}.defaultMode", errors)
    _items(source.get("items") or (), f"{path}.items", errors)


def config_map(source: Object, path: str, errors: Errors) -> None:
    if not source.get("name"):
        errors.append(required(f"{path}.name"))
    file_mode(source.get("defaultMode"), f"{path}.defaultMode", errors)
    _items(source.get("items") or (), f"{path}.items", errors)


def _items(items: Iterable[Object], path: str, errors: Errors) -> None:
    for index, item in enumerate(items):
        place = f"{path}[{index}]"
        if not item.get("key"):
            errors.append(required(f"{place}.key"))
        if not (file := item.get("path", "")):
            errors.append(required(f"{place}.path"))
        local(file, f"{place}.path", errors)
        file_mode(item.get("mode"), f"{place}.mode", errors)


def downward_api(source: Object, path: str, errors: Errors) -> None:
    file_mode(source.get("defaultMode"), f"{path}.defaultMode", errors)
    _downward_files(source.get("items") or (), path, errors)


def _downward_files(files: Iterable[Object], path: str, errors: Errors) -> None:
    """Files of a downward API; upstream names their fields without an index."""
    for file in files:
        if not (name := file.get("path", "")):
            errors.append(required(f"{path}.path"))
        local(name, f"{path}.path", errors)
        field, resource = file.get("fieldRef"), file.get("resourceFieldRef")
        if field is not None:
            field_ref(field, VOLUME_FIELDS, f"{path}.fieldRef", errors)
            if resource is not None:
                detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
                errors.append(invalid(path, "resource", detail))
        elif resource is not None:
            resource_field_ref(resource, f"{path}.resourceFieldRef", errors, needs_container=True)
        else:
            errors.append(required(path, "one of fieldRef and resourceFieldRef is required"))
        file_mode(file.get("mode"), f"{path}.mode", errors)


def projected(source: Object, path: str, errors: Errors) -> None:
    file_mode(source.get("defaultMode"), f"{path}.defaultMode", errors)
    seen: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        place = f"{path}.sources[{index}]"
        kinds = [kind for kind in _PROJECTIONS if kind in projection]
        for kind in kinds:
            _PROJECTIONS[kind](projection[kind], f"{place}.{kind}", path, errors)
            for file, file_path in _files(kind, projection[kind]):
                if file in seen:
                    errors.append(invalid(path, file_path, "conflicting duplicate paths"))
                seen.add(file)
        if len(kinds) > 1:
            errors.append(forbidden(place, "may not specify more than 1 volume type per source"))


def _files(kind: str, source: Object) -> Iterator[tuple[str, str]]:
    """Yields the files that a source writes, each with the value for an error message."""
    if kind == "clusterTrustBundle":
        yield source.get("path", ""), source.get("path", "")
    elif kind == "podCertificate":
        yield from ((source[path], source[path]) for path in _CERTIFICATE_PATHS if source.get(path))
    elif kind != "serviceAccountToken":
        for item in source.get("items") or ():
            if file := item.get("path"):
                yield file, file if kind == "downwardAPI" else source.get("name", "")


def _object(source: Object, path: str, _volume: str, errors: Errors) -> None:
    """A Secret or ConfigMap."""
    if not source.get("name"):
        errors.append(required(f"{path}.name"))
    _items(source.get("items") or (), f"{path}.items", errors)


def _downward(source: Object, path: str, _volume: str, errors: Errors) -> None:
    _downward_files(source.get("items") or (), path, errors)


def _token(source: Object, path: str, volume: str, errors: Errors) -> None:
    seconds = source.get("expirationSeconds", 0)
    if seconds < _SHORTEST_TOKEN:
        detail = "may not specify a duration less than 10 minutes"
        errors.append(invalid(f"{path}.expirationSeconds", seconds, detail))
    elif seconds > _LONGEST_TOKEN:
        detail = "may not specify a duration larger than 2^32 seconds"
        errors.append(invalid(f"{path}.expirationSeconds", seconds, detail))
    if not (file := source.get("path")):
        errors.append(required(f"{volume}.path"))
    else:
        local(file, f"{volume}.path", errors)


def _trust_bundle(source: Object, path: str, _volume: str, errors: Errors) -> None:
    name, signer = source.get("name"), source.get("signerName")
    if name is not None and signer is not None:
        errors.append(invalid(path, source, "only one of name and signerName may be used"))
    elif name is not None:
        if not name:
            errors.append(required(f"{path}.name", "must be a valid object name"))
        for message in names.dns_subdomain(name.rpartition(":")[2]):
            errors.append(invalid(f"{path}.name", name, f"not a valid clustertrustbundlename: {message}"))
        if (selector := source.get("labelSelector")) is not None:
            detail = "labelSelector must be unset if name is specified"
            errors.append(invalid(f"{path}.labelSelector", selector, detail))
    elif signer is not None:
        if not signer:
            errors.append(required(f"{path}.signerName", "must be a valid signer name"))
        _signer_name(signer, f"{path}.signerName", errors)
        label_selector(source.get("labelSelector"), f"{path}.labelSelector", errors)
    else:
        errors.append(required(path, "either name or signerName must be specified"))
    if not (file := source.get("path", "")):
        errors.append(required(f"{path}.path"))
    local(file, f"{path}.path", errors)


def _signer_name(signer: str, path: str, errors: Errors) -> None:
    domain, _, name = signer.partition("/")
    if not signer:
        errors.append(required(path))
        return
    if signer.count("/") != 1:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        errors.append(invalid(path, signer, detail))
        return
    _segments(domain, names.dns_label, path, errors)
    if "." not in domain:
        errors.append(invalid(path, domain, "should be a domain with at least two segments separated by dots"))
    _segments(name, names.dns_subdomain, path, errors)


def _segments(text: str, check: names.Check, path: str, errors: Errors) -> None:
    """Reports the first invalid segment only."""
    for segment in text.split("."):
        if messages := check(segment):
            errors += [invalid(path, text, f'validating label "{segment}": {message}') for message in messages]
            return


def _certificate(source: Object, path: str, _volume: str, errors: Errors) -> None:
    signer = source.get("signerName", "")
    _signer_name(signer, f"{path}.signerName", errors)
    _KEY_TYPES.check(source.get("keyType", ""), f"{path}.keyType", errors)
    if (seconds := source.get("maxExpirationSeconds")) is not None:
        own = f".{signer.partition('/')[0]}".endswith(".kubernetes.io")
        longest = _LONGEST_KUBERNETES_CERTIFICATE if own else _LONGEST_CERTIFICATE
        place = f"{path}.maxExpirationSeconds"
        if seconds < _SHORTEST_CERTIFICATE:
            detail = f"if provided, maxExpirationSeconds must be >= {_SHORTEST_CERTIFICATE}"
            errors.append(invalid(place, seconds, detail))
        elif seconds > longest:
            errors.append(invalid(place, seconds, f"if provided, maxExpirationSeconds must be <= {longest}"))
    given = [field for field in _CERTIFICATE_PATHS if source.get(field)]
    for field in given:
        local(source[field], f"{path}.{field}", errors)
    if not given:
        detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        errors.append(required(path, detail))


_PROJECTIONS: Mapping[str, Callable[[Object, str, str, Errors], None]] = {
    "secret": _object,
    "configMap": _object,
    "downwardAPI": _downward,
    "serviceAccountToken": _token,
    "clusterTrustBundle": _trust_bundle,
    "podCertificate": _certificate,
}
