"""Other programs with faults of the same kinds, so that no rule fits one program only."""
