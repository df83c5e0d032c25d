"""The only place that names several rooms: builds them, connects them, orders their start and stop."""
