"""What holds for all tests."""

import multiprocessing

# Workers by forkserver then start in milliseconds: torch is imported once, not once in each.
multiprocessing.set_forkserver_preload(["torch", "torch.utils.data"])
