"""ValidatingAdmissionPolicy: compiled expressions, match constraints and their evaluation."""
