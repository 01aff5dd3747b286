"""The fields of a `step` record that hosts read, in this order, after the event."""

STEP = {
    "event": "step",
    "steps": 10,
    "local_step": 30,
    "global_step_after": 60,
    "loss": 0.5,
    "examples": 1000,
    "seconds": 2.0,
    "wall": 1e9,
}
