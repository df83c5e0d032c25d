"""Containers: create, start, stop, remove; bundles for the OCI runtime and the shim that runs it."""
