"""The command line, `shardstream`: looking at data sets, checking, mending and moving them.

Each command's work is a plain function that returns a dataclass, in a module of the command's name;
`commands` declares arguments and options, `tables` shows results to people, `main` is what the
installed script calls. Neither typer nor rich is imported by the functions.
"""
