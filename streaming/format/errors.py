"""The errors of the formats: what is wrong, in which file, shard, column or sample.

Every class can be made from one string (torch rebuilds a worker's exception so), and pickles.
"""


class FormatError(ValueError):
    """A file, an index, a schema or a value that the formats cannot hold or cannot read."""


class CorruptShardError(FormatError):
    """A shard's file is truncated, damaged, or not the one that the index describes."""


class EncodeError(FormatError):
    """A value cannot be written under its column's encoding.

    An encoding knows the value alone; a writer that catches this adds the column and the sample's
    number, by making the same class from a longer message.
    """


class EncodeTypeError(EncodeError, TypeError, AttributeError):
    """The value's type, dtype or shape is not its encoding's.

    An AttributeError as well, because mosaicml-streaming raises that and scripts may catch it.
    """


class EncodeRangeError(EncodeError, OverflowError):
    """The value has the right type and does not fit, such as 300 in a ``uint8``."""


class MissingExtraError(ImportError):
    """An optional package is needed; the message holds the ``pip install`` line."""
