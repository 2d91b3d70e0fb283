"""One training per framework that diverges for a known reason and is bisected."""
