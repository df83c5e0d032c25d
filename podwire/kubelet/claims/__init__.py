"""ResourceClaims of pods (DRA): drivers prepare them before anything is started, and unprepare them at the end."""

from podwire.kubelet.claims.errors import ClaimsNotReady, NotUnprepared
from podwire.kubelet.claims.manager import ClaimManager
from podwire.kubelet.claims.settings import ClaimSettings

__all__ = ["ClaimManager", "ClaimSettings", "ClaimsNotReady", "NotUnprepared"]
