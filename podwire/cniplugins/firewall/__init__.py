"""The CNI plugin firewall; `plugin.py` has it."""
