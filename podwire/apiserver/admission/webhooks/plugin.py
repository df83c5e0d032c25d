"""The two plugins that call webhooks."""

import asyncio
import logging
import uuid
from collections.abc import Iterable

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.admission.mutation import Reinvocation, json_text, take_over
from podwire.apiserver.admission.policies.requests import MatchedRequest, Versions
from podwire.apiserver.admission.webhooks.metrics import WebhookMetrics
from podwire.apiserver.admission.webhooks.review import Answer, BadAnswer, denied, encode_review, read_answer
from podwire.apiserver.request import context, offload
from podwire.apiserver.webhook_calls import CallFailed, WebhookCalls
from podwire.interfaces import Clock
from podwire.kinds.patches import PatchError, json_patch
from podwire.kinds.policies.evaluation import Failure, Spent, meets_conditions
from podwire.kinds.policies.webhook import Webhook
from podwire.kinds.resource import Resource
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request

_log = logging.getLogger("podwire.apiserver.webhooks")

GROUP = "admissionregistration.k8s.io"
"""Webhooks are never called for their own configurations: nobody can lock out the removal of a webhook."""


class Webhooks(AdmissionPlugin):
    """Calls the webhooks of one type that match a request."""

    type = ""
    """The name of the type in metrics and audit annotations."""
    mutating = False

    def __init__(self, versions: Versions, calls: WebhookCalls, clock: Clock, metrics: WebhookMetrics) -> None:
        self._versions = versions
        self._calls = calls
        self._clock = clock
        self._metrics = metrics
        self.active: tuple[Webhook, ...] = ()
        """In the order in which they are called."""
        self._by_resource: dict[str, tuple[Webhook, ...]] = {}

    def replace(self, webhooks: Iterable[Webhook]) -> None:
        self.active, self._by_resource = tuple(webhooks), {}

    def _candidates(self, operation: Operation) -> tuple[Webhook, ...]:
        if operation.internal or operation.resource.group == GROUP:
            return ()
        name = operation.resource.name
        candidates = self._by_resource.get(name)
        if candidates is None:
            candidates = tuple(webhook for webhook in self.active if webhook.constraints.names(name))
            self._by_resource[name] = candidates
        return candidates

    async def _matching(self, webhook: Webhook, request: MatchedRequest) -> Resource | None:
        """Returns the resource as which a webhook sees a request; None if it is not called."""
        seen_as = await request.matching(webhook.constraints)
        if seen_as is None or webhook.conditions is None:
            return seen_as
        try:
            known = request.attributes.known(seen_as, None, None)
            met = await request.evaluate(meets_conditions, webhook.conditions, known)
        except Spent:
            met = Failure("running out of cost budget") if webhook.fails else False
        operation = request.attributes.operation
        if isinstance(met, Failure):
            raise operation.forbidden(met.message)
        if not met:
            self._metrics.excluded(webhook.name, self.type, operation.verb)
        return seen_as if met else None

    async def _call(self, webhook: Webhook, request: MatchedRequest, seen_as: Resource, index: int) -> Answer | None:
        """Returns the answer of a webhook; None if it failed and need not be asked. Raises ApiError."""
        operation, began = request.attributes.operation, self._clock.monotonic()
        if operation.dry_run and not webhook.dry_run:
            self._metrics.rejected(webhook.name, self.type, operation.verb, "apiserver_internal_error", 0)
            raise bad_request(f'admission webhook "{webhook.name}" does not support dry run')
        try:
            answer = await self._ask(webhook, request, seen_as)
        except CallFailed as failure:
            self._failed(webhook, operation, failure, began, index)
            return None
        code, rejected = 200, not answer.allowed
        if rejected:
            code = denied(webhook, answer.result).code
            self._metrics.rejected(webhook.name, self.type, operation.verb, "no_error", code)
        seconds = self._clock.monotonic() - began
        self._metrics.called(webhook.name, self.type, operation.verb, seconds, code, rejected=rejected)
        if answer.annotations:
            operation.annotate({f"{webhook.name}/{key}": value for key, value in answer.annotations.items()})
        for warning in answer.warnings:
            context.warn(warning)
        return answer

    async def _ask(self, webhook: Webhook, request: MatchedRequest, seen_as: Resource) -> Answer:
        """Posts a review and reads the answer. Raises CallFailed."""
        if not webhook.review_version:
            why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise CallFailed(f"could not create admission objects: {why}", 400)
        uid = str(uuid.uuid4())
        review = await offload.run(
            encode_review,
            webhook,
            uid,
            request.attributes.request(seen_as.kind),
            *request.attributes.seen_as(seen_as),
        )
        try:
            reply = await self._calls.post(webhook.client, review, webhook.seconds)
        except CallFailed as failure:
            raise CallFailed(f"failed to call webhook: {failure}", failure.code) from failure
        try:
            return read_answer(webhook, uid, reply, mutating=self.mutating)
        except BadAnswer as error:
            raise CallFailed(f"received invalid webhook response: {error}") from error

    def _failed(self, webhook: Webhook, operation: Operation, failure: CallFailed, began: float, index: int) -> None:
        """Handles a webhook that did not answer as its failurePolicy says; raises ApiError for Fail."""
        seconds, name = self._clock.monotonic() - began, webhook.name
        self._metrics.called(name, self.type, operation.verb, seconds, failure.code, rejected=webhook.fails)
        _log.warning("cannot call webhook", extra={"webhook": name, "fails": webhook.fails, "error": str(failure)})
        if webhook.fails:
            self._metrics.rejected(name, self.type, operation.verb, "calling_webhook_error", failure.code)
            raise internal_error(f'failed calling webhook "{name}": {failure}')
        self._metrics.failed_open(name, self.type)
        word = "mutation" if self.mutating else "validating"
        where = f"round_{operation.round}_index_{index}"
        operation.annotate({f"failed-open.{word}.webhook.admission.k8s.io/{where}": name})


class MutatingWebhooks(Webhooks):
    """Calls mutating webhooks one after the other; each sees what those before it have changed."""

    type = "admit"
    mutating = True
    admits_parts = True

    async def admit(self, operation: Operation) -> None:
        candidates = self._candidates(operation) if self.active else ()
        if not candidates:
            return
        reinvocation = Reinvocation.of(operation, "MutatingAdmissionWebhook")
        for index, webhook in enumerate(candidates):
            request = MatchedRequest(self._versions, operation)
            seen_as = await self._matching(webhook, request)
            if seen_as is None or reinvocation.skips(operation, webhook.id):
                continue
            answer = await self._call(webhook, request, seen_as, index)
            changed = answer is not None and await offload.run(self._take, webhook, request, seen_as, answer, index)
            reinvocation.called(operation, webhook.id, changed=changed, reinvoked=webhook.reinvoked)
        reinvocation.ended(operation)

    def _take(self, webhook: Webhook, request: MatchedRequest, seen_as: Resource, answer: Answer, index: int) -> bool:
        """Applies the patch of an answer; returns whether the object has changed."""
        operation, changed = request.attributes.operation, False
        if not answer.allowed:
            raise denied(webhook, answer.result)
        if answer.operations:
            new, _ = request.attributes.seen_as(seen_as)
            if new is None:
                why = "attempted to modify the object, which is not supported for this operation"
                raise internal_error(f'admission webhook "{webhook.name}" {why}')
            try:
                patched = json_patch.apply(new, answer.operations)
            except PatchError as error:
                raise internal_error(error.message) from error
            changed = take_over(operation, seen_as, patched)
            self._annotate(webhook, operation, index, {"patch": answer.operations, "patchType": "JSONPatch"}, "patch")
        self._annotate(webhook, operation, index, {"mutated": changed}, "mutation")
        return changed

    @staticmethod
    def _annotate(webhook: Webhook, operation: Operation, index: int, value: dict[str, object], word: str) -> None:
        key = f"{word}.webhook.admission.k8s.io/round_{operation.round}_index_{index}"
        whole = {"configuration": webhook.configuration, "webhook": webhook.name, **value}
        context.annotate({key: json_text(whole)})


class ValidatingWebhooks(Webhooks):
    """Calls validating webhooks at once; the first refusal in their order counts."""

    type = "validating"

    async def validate(self, operation: Operation) -> None:
        candidates = self._candidates(operation) if self.active else ()
        if not candidates:
            return
        request = MatchedRequest(self._versions, operation)
        matching: list[tuple[int, Webhook, Resource]] = []
        for index, webhook in enumerate(candidates):
            if (seen_as := await self._matching(webhook, request)) is not None:
                matching.append((index, webhook, seen_as))
        if len(matching) == 1:
            await self._validate(request, *matching[0])
            return
        outcomes = await asyncio.gather(*(self._validate(request, *one) for one in matching), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _validate(self, request: MatchedRequest, index: int, webhook: Webhook, seen_as: Resource) -> None:
        answer = await self._call(webhook, request, seen_as, index)
        if answer is not None and not answer.allowed:
            raise denied(webhook, answer.result)


def internal_error(text: str) -> ApiError:
    return ApiError(Reason.INTERNAL_ERROR, f"Internal error occurred: {text}", details={"causes": [{"message": text}]})
