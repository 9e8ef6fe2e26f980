"""How values become bytes or text: one module for each family of shard formats."""
