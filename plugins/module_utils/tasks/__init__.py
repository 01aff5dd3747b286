"""The tasks of a host: their units, their runs, their metrics."""
