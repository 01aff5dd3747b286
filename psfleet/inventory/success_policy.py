"""`training_run_success`: which workers must have finished for a run to end well."""

from trainer.contract.rules import Rule, to_integer

VARIABLE = "training_run_success"
ALL_WORKERS, CHIEF = "all_workers", "chief"
SuccessPolicy = str | int


def _to_policy(value: object) -> SuccessPolicy:
    word = value.strip() if isinstance(value, str) else ""
    if word in {ALL_WORKERS, CHIEF}:
        return word
    workers = to_integer(value)
    if workers < 1:
        raise ValueError(value)
    return workers


POLICY_RULE = Rule(
    f"{ALL_WORKERS}, {CHIEF}, or the number of workers that must finish, an integer >= 1", _to_policy
)


def needed_workers(policy: SuccessPolicy, workers: int) -> int:
    """Return how many of a run's `workers` workers must have finished; one of them must be the chief.

    Examples: ("all_workers", 3) -> 3, ("chief", 3) -> 1, (2, 3) -> 2, (5, 3) -> 3.
    """
    if isinstance(policy, int):
        return min(policy, workers)
    return 1 if policy == CHIEF else workers
