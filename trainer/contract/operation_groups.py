"""What the operations of a step are for: how `devices/<task>.json` counts those that no model names."""

INPUT, READS, GRADIENTS, AGGREGATION = "input", "variable reads", "gradients", "aggregation"
OPTIMIZER, LEDGER, TRANSFERS, REWRITTEN = "optimizer", "ledger", "transfers", "rewritten by TensorFlow"
# The order in which they are shown, after the operations that the model names.
GROUPS = (INPUT, READS, GRADIENTS, AGGREGATION, OPTIMIZER, LEDGER, TRANSFERS, REWRITTEN)
