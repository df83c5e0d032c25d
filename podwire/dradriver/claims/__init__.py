"""Claims that the kubelet wants prepared: allocations, prepared devices, and the files that containers get."""
