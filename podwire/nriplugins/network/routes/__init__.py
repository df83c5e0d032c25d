"""Routes in a pod's namespace, as PodRoutes want them: read, planned, compared with what is there, applied."""

from podwire.nriplugins.network.routes.kernel import Outcome, apply, remove
from podwire.nriplugins.network.routes.plan import Plan, plan
from podwire.nriplugins.network.routes.resource import PodRoute, read

__all__ = ["Outcome", "Plan", "PodRoute", "apply", "plan", "read", "remove"]
