"""See what runs do: where their time goes, who waits for what, and what to do about it."""
