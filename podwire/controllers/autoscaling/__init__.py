"""HorizontalPodAutoscaler: decisions that are pure, a client of the metrics APIs, and the controller."""
