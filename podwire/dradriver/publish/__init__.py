"""Publishes what the driver has and does: ResourceSlices, claim statuses, events, metrics, registration sockets."""
