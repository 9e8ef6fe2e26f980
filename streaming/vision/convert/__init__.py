"""Converters of image data sets, each a script: `python -m streaming.vision.convert.imagenet`."""
