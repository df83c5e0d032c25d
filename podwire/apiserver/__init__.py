"""Verbs over the store: authentication, admission, validation, watch fan-out. Speaks: k8sapi."""
