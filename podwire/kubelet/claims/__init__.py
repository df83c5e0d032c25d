"""The claims of pods: drivers of this node prepare them before anything is started, and let go of them at the end."""

from podwire.kubelet.claims.errors import ClaimsNotReady, NotUnprepared
from podwire.kubelet.claims.manager import ClaimManager, Listeners
from podwire.kubelet.claims.settings import ClaimSettings

__all__ = ["ClaimManager", "ClaimSettings", "ClaimsNotReady", "Listeners", "NotUnprepared"]
