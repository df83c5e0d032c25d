"""The audit log: who asked for what, when, and what came of it."""

from podwire.apiserver.audit.audit import Audit, Entry
from podwire.apiserver.audit.log_file import AuditLog, Rotation
from podwire.apiserver.audit.policy import read_policy

__all__ = ["Audit", "AuditLog", "Entry", "Rotation", "read_policy"]
