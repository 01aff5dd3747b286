"""Training of embedding tables: their optimizers, and which rows have changed since the last save."""
