"""Inventory in; cluster plan and the settings of every task out, or every problem with its file."""
