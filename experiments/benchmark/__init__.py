"""Hundreds of seeded faults in small programs, and how often a bisect names the right cause."""
