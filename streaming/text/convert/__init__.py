"""Converters of texts, each a script: `python -m streaming.text.convert.pile`."""
