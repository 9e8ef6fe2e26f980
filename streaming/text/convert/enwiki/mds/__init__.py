"""From Wikipedia's sentences to masked samples in MDS shards."""
