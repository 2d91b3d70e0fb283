"""Early warning, measured on trainings that crash slowly, suddenly or not at all."""
