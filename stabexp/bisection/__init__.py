"""Finds which change makes a diverged run stable again, by replaying it with one thing changed."""
