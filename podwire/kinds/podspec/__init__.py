"""Pod specs, in a Pod or in the template of a workload: defaults and validation."""
