"""OTLP: spans as collectors of OpenTelemetry read them, in the few messages that carry them."""
