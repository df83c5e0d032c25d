"""Defines each Kubernetes kind: schema, defaults, validation, conversion, columns. Pure: no I/O, no event loop."""
