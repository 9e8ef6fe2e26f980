"""One module for each kind of source; `streaming.convert.open.open_source` chooses."""
