"""Converters of data sets of several media, each a script."""
