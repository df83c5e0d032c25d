"""The CNI plugin route-override; `plugin.py` has it."""
