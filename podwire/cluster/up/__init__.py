"""`podwire up` and `podwire down`: prepares, supervises, inspects and removes a whole cluster on this machine."""
