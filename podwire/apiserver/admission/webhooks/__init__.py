"""Admission webhooks: MutatingAdmissionWebhook and ValidatingAdmissionWebhook.

Per request: match (rules, selectors, conditions) → AdmissionReview → answer → allow, deny, patch. Mutating webhooks are
called one after the other, validating ones at once.
"""
