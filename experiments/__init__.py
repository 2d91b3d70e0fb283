"""Seeded faults, and scripts that measure what the project claims about them."""
