"""Set-ups with one planted mistake each, and clean ones, for what is found before training."""
