"""Admission: a chain of small plugins that complete a write before it is validated, or check it afterwards.

The order matters and is upstream's; `plugins.py` has the table.
"""

from podwire.apiserver.admission.chain import Admission, AdmissionPlugin, Operation

__all__ = ["Admission", "AdmissionPlugin", "Operation"]
