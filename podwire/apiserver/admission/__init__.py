"""What is filled in or refused after a request is understood and before it is validated: a list of small judges.

Order matters and is upstream's: namespace lifecycle, service account, priority, tolerations, service addresses.
"""

from podwire.apiserver.admission.chain import Admission, AdmissionPlugin, Operation

__all__ = ["Admission", "AdmissionPlugin", "Operation"]
