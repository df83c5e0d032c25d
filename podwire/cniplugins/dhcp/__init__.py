"""The CNI plugin dhcp; `plugin.py` has it."""
