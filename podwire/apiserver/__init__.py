"""The Kubernetes API over a store: identity, admission, validation, verbs, watches. Speaks: k8sapi."""

from podwire.apiserver.assembly import Assembled, Settings, assemble
from podwire.apiserver.identity.pki import Pki, PkiError
from podwire.apiserver.ports import Store
from podwire.apiserver.server import ApiServer

__all__ = ["ApiServer", "Assembled", "Pki", "PkiError", "Settings", "Store", "assemble"]
