"""The groups by purpose in which `devices/<task>.json` counts the operations that no model names."""

INPUT, READS, GRADIENTS, AGGREGATION = "input", "variable reads", "gradients", "aggregation"
OPTIMIZER, LEDGER, TRANSFERS, REWRITTEN = "optimizer", "ledger", "transfers", "rewritten by TensorFlow"
# The order in which reports show the groups, after the operations that the model names.
GROUPS = (INPUT, READS, GRADIENTS, AGGREGATION, OPTIMIZER, LEDGER, TRANSFERS, REWRITTEN)
