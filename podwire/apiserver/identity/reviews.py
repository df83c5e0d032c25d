"""Reviews of tokens and access, and token requests: answered, not stored."""

from collections.abc import Mapping, Sequence
from typing import Any

from podwire.apiserver.admission import subresource_policies
from podwire.apiserver.engine import Engine
from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.identity.rules import Rule
from podwire.apiserver.identity.tokens import BadToken, Named, TokenTooLong
from podwire.apiserver.identity.users import User, node_name
from podwire.apiserver.request import bodies, offload
from podwire.apiserver.request.call import Call, write_options
from podwire.apiserver.request.response import ListMeta, Renderer, answer, list_answer
from podwire.apiserver.request.verbs import Verb, body_of, show
from podwire.kinds import stored
from podwire.kinds.stored import Object
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Answer
from podwire.protocols.k8sapi.status import (
    ApiError,
    FieldError,
    Problem,
    bad_request,
    conflict,
    invalid,
    invalid_object,
    not_found,
    required,
)
from podwire.protocols.storage import Item

TOKEN_REQUEST = Kind(group="authentication.k8s.io", version="v1", resource="tokenrequests", kind="TokenRequest")
SHORTEST_TOKEN, LONGEST_TOKEN = 600, 2**32

_BOUND_RESOURCES = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


async def _asked(call: Call) -> Object:
    options = write_options(call.request, "CreateOptions")
    return await offload.run(bodies.shaped, await body_of(call), call.resource, options.field_validation)


def _review_response(call: Call, review: Object, status: Mapping[str, Any]) -> Answer:
    review["metadata"].setdefault("creationTimestamp", None)
    return answer(call.request, stored.encode({**review, "status": status}), status=201)


def _user_info(user: User) -> Object:
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


async def self_subject(engine: Engine, call: Call) -> Answer:
    """SelfSubjectReview: returns the user of the request."""
    review = await _asked(call)
    review["metadata"]["creationTimestamp"] = rfc3339(engine.clock.wall())
    return _review_response(call, review, {"userInfo": _user_info(call.user)})


async def token_review(engine: Engine, call: Call) -> Answer:
    """TokenReview: returns the user of a token."""
    review = await _asked(call)
    spec = review.get("spec", {})
    if not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    audiences = spec.get("audiences", [])
    try:
        user = await engine.identity.authenticator.authenticate_token(spec["token"], audiences)
    except BadToken as error:
        return _review_response(call, review, {"authenticated": False, "user": {}, "error": error.reason})
    status: Object = {"authenticated": True, "user": _user_info(user)}
    status["audiences"] = audiences or list(engine.identity.tokens.audiences)
    return _review_response(call, review, status)


async def self_access(engine: Engine, call: Call) -> Answer:
    """SelfSubjectAccessReview: decides for the user of the request."""
    review = await _asked(call)
    spec = review.get("spec", {})
    _check(call, _attribute_errors(spec))
    return _review_response(call, review, _access_status(engine, call.user, spec))


async def subject_access(engine: Engine, call: Call) -> Answer:
    """SubjectAccessReview: decides for the given user."""
    review = await _asked(call)
    spec = review.get("spec", {})
    user = User(
        name=spec.get("user", ""),
        uid=spec.get("uid", ""),
        groups=tuple(spec.get("groups", ())),
        extra={key: tuple(values) for key, values in spec.get("extra", {}).items()},
    )
    errors = _attribute_errors(spec)
    if not user.name and not user.groups:
        errors.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    if call.namespace:
        errors += _namespace_errors(spec, call.namespace)
    _check(call, errors)
    return _review_response(call, review, _access_status(engine, user, spec))


def _check(call: Call, errors: list[FieldError]) -> None:
    if errors:
        raise invalid_object(call.resource.kind.kind, "", errors, group=call.resource.group)


def _attribute_errors(spec: Object) -> list[FieldError]:
    if ("resourceAttributes" in spec) != ("nonResourceAttributes" in spec):
        return []
    why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    return [invalid("spec", spec.get("nonResourceAttributes"), why)]


def _namespace_errors(spec: Object, namespace: str) -> list[FieldError]:
    """Refuses attributes outside of the review's namespace."""
    if "nonResourceAttributes" in spec:
        asked = spec["nonResourceAttributes"]
        return [invalid("spec.nonResourceAttributes", asked, "disallowed on this kind of request")]
    asked = spec.get("resourceAttributes", {}).get("namespace", "")
    if asked == namespace:
        return []
    return [invalid("spec.resourceAttributes.namespace", asked, "must match metadata.namespace")]


def _access_status(engine: Engine, user: User, spec: Object) -> Object:
    decision = engine.identity.authorizer.check(user, _attributes(spec))
    return {"allowed": decision.allowed, **({"reason": decision.reason} if decision.reason else {})}


def _attributes(spec: Object) -> Attributes:
    if "nonResourceAttributes" in spec:
        path = spec["nonResourceAttributes"]
        return Attributes(verb=path.get("verb", ""), path=path.get("path", ""))
    resource = spec["resourceAttributes"]
    words = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
    requirements = resource.get("fieldSelector", {}).get("requirements") or ()
    fields = tuple(
        (requirement.get("key", ""), requirement["values"][0])
        for requirement in requirements
        if requirement.get("operator") == "In" and len(requirement.get("values") or ()) == 1
    )
    return Attributes(**{word: resource.get(word, "") for word in words}, fields=fields)


_NODE_RULES = "node authorizer does not support user rule resolution"


async def self_rules(engine: Engine, call: Call) -> Answer:
    """SelfSubjectRulesReview: lists the rules of the user in a namespace."""
    review = await _asked(call)
    namespace = review.get("spec", {}).get("namespace", "")
    if not namespace:
        raise bad_request("no namespace on request")
    rules = engine.identity.authorizer.rules_of(call.user, namespace)
    by_resource = [
        _listed(rule, apiGroups=rule.api_groups, resources=rule.resources) for rule in rules if rule.resources
    ]
    by_path = [_listed(rule, nonResourceURLs=rule.paths) for rule in rules if rule.paths]
    status: Object = {"resourceRules": by_resource, "nonResourceRules": by_path, "incomplete": False}
    if node_name(call.user) is not None:
        status |= {"incomplete": True, "evaluationError": _NODE_RULES}
    return _review_response(call, review, status)


def _listed(rule: Rule, **objects: Sequence[str]) -> Object:
    names = {"resourceNames": list(rule.resource_names)} if rule.resource_names else {}
    return {"verbs": list(rule.verbs), **{field: list(words) for field, words in objects.items()}, **names}


async def token(engine: Engine, call: Call) -> Answer:
    """TokenRequest: issues a token for a service account, bound to a pod, secret or node if requested."""
    options = write_options(call.request, "CreateOptions")
    shape = engine.shape("authentication.k8s.io/v1", "TokenRequest")
    request = bodies.shape_as(await body_of(call), TOKEN_REQUEST, shape, options.field_validation)
    account = await engine.find(call.resource, call.namespace, call.name)
    if account is None:
        raise not_found("serviceaccounts", call.name)
    _check_place(request["metadata"], call, account)
    spec = request.setdefault("spec", {})
    seconds = _seconds(spec)
    bound = await _bound(engine, call, spec.get("boundObjectRef"))
    await subresource_policies.created(engine, call, request, call.name, "token", dry_run=options.dry_run)
    try:
        issued = engine.identity.tokens.issue(
            call.namespace,
            call.name,
            account["metadata"]["uid"],
            audiences=spec.get("audiences", []),
            seconds=seconds,
            **bound,
        )
    except TokenTooLong as error:
        raise _refused([FieldError(Problem.TOO_LONG, "spec.audiences", "", str(error))]) from error
    spec["expirationSeconds"] = seconds
    spec["audiences"] = spec.get("audiences") or list(engine.identity.tokens.audiences)
    metadata = {
        "name": call.name,
        "namespace": call.namespace,
        "uid": account["metadata"]["uid"],
        "creationTimestamp": rfc3339(engine.clock.wall()),
    }
    status = {"token": issued.token, "expirationTimestamp": rfc3339(issued.expiration.timestamp())}
    whole = {**request, "metadata": metadata, "status": status}
    return answer(call.request, stored.encode(whole), status=201)


def _seconds(spec: Object) -> int:
    seconds: int = spec.get("expirationSeconds", 3600)
    if seconds < SHORTEST_TOKEN:
        error = invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    elif seconds > LONGEST_TOKEN:
        error = invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    else:
        return seconds
    raise _refused([error])


def _check_place(metadata: Object, call: Call, account: Object) -> None:
    """Checks that a token request names the service account of the URL, if it names one."""
    errors = [
        invalid(f"metadata.{word}", given, f"must match the service account {word} if specified")
        for word, wanted in (("name", call.name), ("namespace", call.namespace))
        if (given := metadata.get(word)) and given != wanted
    ]
    if errors:
        raise _refused(errors)
    uid, real = metadata.get("uid"), account["metadata"]["uid"]
    if uid and uid != real:
        why = f"the UID in the token request ({uid}) does not match the UID of the service account ({real})"
        raise conflict("TokenRequest", call.name, why, group="authentication.k8s.io")


def _refused(errors: list[FieldError]) -> ApiError:
    return invalid_object("TokenRequest", "", errors, group="authentication.k8s.io")


async def _bound(engine: Engine, call: Call, reference: Object | None) -> dict[str, Any]:
    """Returns the object that a token is bound to, checked to exist and to belong to the account."""
    if reference is None:
        return {}
    kind, name, uid = reference.get("kind", ""), reference.get("name", ""), reference.get("uid", "")
    if kind not in _BOUND_RESOURCES or "/" in reference.get("apiVersion", ""):
        raise bad_request(f"cannot bind token to object of type {reference.get('apiVersion', '')}, Kind={kind}")
    if not name:
        raise _refused([required("spec.boundObjectRef.name")])
    resource = engine.registry.builtin("", _BOUND_RESOURCES[kind])
    obj = await engine.find(resource, call.namespace, name)
    if obj is None:
        raise not_found(resource.name, name)
    if kind == "Pod" and obj["spec"].get("serviceAccountName", "") != call.name:
        why = f'cannot bind token for serviceaccount "{call.name}" to pod running with different serviceaccount name.'
        raise bad_request(why)
    if uid and uid != obj["metadata"]["uid"]:
        why = f"the UID in the bound object reference ({uid}) does not match the UID in record. "
        raise conflict(kind, name, f"{why}The object might have been deleted and then recreated")
    bound: dict[str, Any] = {kind.lower(): Named(name, obj["metadata"]["uid"])}
    if kind == "Pod" and (node := obj["spec"].get("nodeName")):
        found = await engine.find(engine.registry.builtin("", "nodes"), "", node)
        bound["node"] = Named(node, found["metadata"]["uid"] if found else "")
    return bound


async def component_statuses(engine: Engine, call: Call) -> Answer:
    """ComponentStatus (deprecated): the store is the only component known here."""
    condition = {"type": "Healthy", "status": "True", "message": "ok"}
    status = {"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": "etcd-0"}, "conditions": [condition]}
    item = Item("etcd-0", stored.pack(status), 0, 0)
    if call.verb == "get":
        if call.name != "etcd-0":
            raise not_found("componentstatuses", call.name)
        return show(engine, call, item)
    renderer = Renderer(call.resource, call.form, call.request, engine.clock.wall())
    return await list_answer(call.request, renderer, [item], ListMeta(engine.store.revision), engine.protobuf_items)


REVIEWS: Mapping[tuple[str, str, str, str], Verb] = {
    ("authentication.k8s.io", "selfsubjectreviews", "", "create"): self_subject,
    ("authentication.k8s.io", "tokenreviews", "", "create"): token_review,
    ("authorization.k8s.io", "selfsubjectaccessreviews", "", "create"): self_access,
    ("authorization.k8s.io", "selfsubjectrulesreviews", "", "create"): self_rules,
    ("authorization.k8s.io", "subjectaccessreviews", "", "create"): subject_access,
    ("authorization.k8s.io", "localsubjectaccessreviews", "", "create"): subject_access,
    ("", "serviceaccounts", "token", "create"): token,
    ("", "componentstatuses", "", "get"): component_statuses,
    ("", "componentstatuses", "", "list"): component_statuses,
}
"""Handlers by group, resource, subresource and verb that do not use the generic verbs."""
