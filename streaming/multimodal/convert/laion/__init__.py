"""LAION: images and their captions."""
