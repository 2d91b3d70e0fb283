"""Failures that people reported in public, re-created small: most are faults of code or data."""
