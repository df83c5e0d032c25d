"""Measures this project and the peers that the machine has, side by side: `python -m benchmarks --help`."""
