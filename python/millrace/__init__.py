"""Millrace: measure, explain, predict and fix the I/O of deep-learning training."""
