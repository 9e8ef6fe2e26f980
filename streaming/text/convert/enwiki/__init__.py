"""The preparation of English Wikipedia for the pre-training of BERT."""
