"""The CNI plugin vrf; `plugin.py` has it."""
