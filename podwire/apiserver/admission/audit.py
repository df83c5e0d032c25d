"""Audit annotations of admission: into the audit log, where one is configured, and into the server's own log."""

import logging
from collections.abc import Mapping

from podwire.apiserver.admission.chain import Operation
from podwire.apiserver.request import context
from podwire.protocols.k8sapi.status import qualified

_log = logging.getLogger("podwire.apiserver.audit")


def record(operation: Operation, annotations: Mapping[str, str]) -> None:
    """Records annotations of one request."""
    context.annotate(annotations)
    _log.info(
        "admission audit annotations",
        extra={
            "annotations": dict(annotations),
            "operation": operation.verb,
            "resource": qualified(operation.resource.name, operation.resource.group),
            "object": operation.name,
            "namespace": operation.namespace,
            "user": operation.user.name,
        },
    )
