"""`podwire chaos`: random faults against a running cluster, while a model checks what must hold."""
