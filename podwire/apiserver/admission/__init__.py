"""Admission: a chain of small plugins that complete or refuse a write before it is validated.

The order matters and is upstream's: namespace lifecycle, service account, priority, tolerations, service addresses.
"""

from podwire.apiserver.admission.chain import Admission, AdmissionPlugin, Operation

__all__ = ["Admission", "AdmissionPlugin", "Operation"]
