"""Traces of pods: records taken at the transports, collected, and shown as the timeline of one pod."""
