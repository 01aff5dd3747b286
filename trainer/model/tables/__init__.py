"""Embedding tables: the look-up of rows on the ps, and the rows in the files of checkpoints."""
