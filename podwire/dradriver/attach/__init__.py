"""Moves claimed devices into pods and restores them on the host: records, plans, steps, link snapshots."""
