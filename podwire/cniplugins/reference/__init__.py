"""Attachments that the reference plugins made (containernetworking/plugins): found by their names, and released."""
