"""Tally: exact votes and task queues on Google Cloud."""

__version__ = "0.1.0"
