"""TCP of a pod redirected to a proxy, as PodMeshes want it: read, planned, compared with what is there, applied."""

from podwire.nriplugins.network.mesh.kernel import Outcome, apply, remove
from podwire.nriplugins.network.mesh.plan import Plan, plan
from podwire.nriplugins.network.mesh.resource import PodMesh, read

__all__ = ["Outcome", "Plan", "PodMesh", "apply", "plan", "read", "remove"]
