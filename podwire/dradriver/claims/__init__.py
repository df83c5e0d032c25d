"""Claims that NodePrepareResources was asked for: their allocations, the prepared devices, and the files that containers get."""
