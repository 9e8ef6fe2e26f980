"""LAION-400M, as img2dataset downloads it."""
