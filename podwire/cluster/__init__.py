"""Wiring: the only package that knows several components. Builds them, connects them, and orders start and stop."""
