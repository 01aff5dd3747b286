import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, make_dataclass

import pytest

from trainer.contract import rules as of
from trainer.contract.contradictions import replication_problems
from trainer.contract.model_card import OPTIMIZERS
from trainer.contract.model_files import MODEL_RULE
from trainer.contract.rules import Rule, SettingProblem, SettingsError
from trainer.contract.settings import REPLICATIONS, TrainingSettings
from trainer.contract.stop_condition import StopCondition

NULL = ", or null for the model's own"
ODD_INTEGERS = [0, -1, "many", 1.5, "1.5", True, None, "", [1], "0x10"]
ODD_NUMBERS = [0, -0.1, "fast", "nan", "inf", math.inf, True, None, [1], 10**400]
TRUTHS = {True: True, " Yes": True, "on": True, "off": False, 0: False}


def short_text() -> Rule:
    return of.checked("a short text", of.to_text, lambda text: len(text) < 4)


@pytest.mark.parametrize(
    ("make", "expected", "taken", "refused"),
    [
        (lambda: of.integer(1), "an integer >= 1", {1: 1, "7": 7, " +3 ": 3, 9**9: 9**9}, ODD_INTEGERS),
        (lambda: of.integer(1, 3), "an integer from 1 to 3", {1: 1, "3": 3}, [0, 4]),
        (lambda: of.number(0.5), "a number >= 0.5", {0.5: 0.5, "1e9": 1e9}, [0.4]),
        (lambda: of.number(0, exclusive=True), "a number > 0", {0.1: 0.1, "1e-3": 0.001}, ODD_NUMBERS),
        (lambda: of.number(0, 1), "a number from 0 to 1", {0: 0, 1: 1}, [-0.1, 1.1]),
        (lambda: of.number(0, 1, exclusive=True), "a number > 0 and <= 1", {1: 1}, [0, 1.1]),
        (lambda: of.BOOLEAN, "true or false", TRUTHS, ["maybe", None, 2]),
        (short_text, "a short text", {"abc": "abc"}, [7, "long"]),
        (lambda: of.or_null(of.integer(1)), f"an integer >= 1{NULL}", {None: None, "7": 7}, [0, True, "no"]),
        (lambda: of.or_null(short_text(), "none"), "a short text, or null for none", {" NULL ": None}, [2]),
    ],
)
def test_a_rule_converts_valid_values_and_refuses_invalid_ones(
    make: Callable[[], Rule], expected: str, taken: dict[object, object], refused: list[object]
) -> None:
    rule = make()
    assert (rule.expected, [rule.convert(value) for value in taken]) == (expected, [*taken.values()])
    for value in refused:
        with pytest.raises(ValueError, match=re.escape(str(value)) or "^$"):
            rule.convert(value)


def test_a_setting_is_a_field_with_its_default_and_its_rule() -> None:
    own = make_dataclass("own", [("width", int, of.setting(7, of.BOOLEAN))])
    assert (own().width, fields(own)[0].metadata["rule"]) == (7, of.BOOLEAN)
    given = {"steps": "7", "learning_rate": "0.5", "optimizer": "null", "barrier_deadline_seconds": "0"}
    asked = TrainingSettings(steps=7, learning_rate=0.5, optimizer=None, barrier_deadline_seconds=0)
    assert TrainingSettings.from_mapping(given) == asked


def test_all_invalid_settings_are_reported_in_one_error() -> None:
    given = {"steps": 0, "model": "resnet", "data_dir": "mnist", "barrier_deadline_seconds": -1}
    with pytest.raises(SettingsError) as caught:
        TrainingSettings.from_mapping({**given, "learning_rate": "fast", "batch_sise": 3})
    assert str(caught.value).split("; ") == [
        *("steps is 0", "expected an integer >= 1"),
        *(
            "model is 'resnet'",
            f"expected {MODEL_RULE.expected}",
        ),
        "data_dir is 'mnist'",
        "expected an absolute path on the hosts without $, or empty for the bundled digits",
        *("barrier_deadline_seconds is -1", "expected a number >= 0"),
        *("learning_rate is 'fast'", f"expected a number > 0{NULL}"),
        *("batch_sise is 3", "expected a setting that exists (did you mean batch_size?)"),
    ]


def test_an_invalid_part_of_a_value_is_named_after_its_setting() -> None:
    def refuse(value: object) -> object:
        raise SettingsError([SettingProblem(f"[{place}]", value, "a port") for place in range(2)])

    names, rules = of.close_names("a key", ["index", "port"], "psf_"), dict.fromkeys("ab", Rule("", refuse))
    with pytest.raises(SettingsError) as caught:
        of.converted({"a": 1, "b": 2, "zzz": 3, "indx": 4}, rules, names, "my_")
    parts = [f"my_{part}; expected a port" for part in ("a[0] is 1", "a[1] is 1", "b[0] is 2", "b[1] is 2")]
    unknown = [
        "my_zzz is 3; expected a key: index, port",
        "my_indx is 4; expected a key (did you mean psf_index?)",
    ]
    assert str(caught.value) == "; ".join([*parts, *unknown])


@pytest.mark.parametrize("path", ["data", "/data;\n/x", "~/data", "/data\x1b[2J", "/data/$HOME"])
def test_a_path_that_no_host_can_have_as_it_is_written_is_refused(path: str) -> None:
    with pytest.raises(SettingsError, match="data_dir is "):
        TrainingSettings.from_mapping({"data_dir": path})


def test_settings_survive_a_round_trip_through_a_file() -> None:
    asked = TrainingSettings.from_mapping(
        {"model": "linear", "learning_rate": 0.25, "shard_data": "yes", "data_dir": '/my "data"'}
    )
    assert TrainingSettings.from_mapping(json.loads(json.dumps(asked.as_dict()))) == asked


def test_a_condition_is_kept_as_people_write_it() -> None:
    asked = TrainingSettings.from_mapping({"stop_when": " auc  >= 7.5e-1 "})
    assert asked.stop_when == "auc >= 7.5e-1"
    assert TrainingSettings.from_mapping({"stop_when": None}).stop_when == ""


@pytest.mark.parametrize(
    ("text", "met", "unmet"),
    [
        ("loss < 0.25", (0.2499, -1, -math.inf), (0.25, 0.3, math.inf)),
        ("loss<=0.25", (0.25, 0), (0.2501,)),
        ("loss > -1e2", (-99, math.inf), (-100, -101)),
        ("loss >= .5", (0.5, 1), (0.4999,)),
    ],
)
def test_a_condition_is_met_by_values_beyond_its_bound(
    text: str, met: Sequence[float], unmet: Sequence[float]
) -> None:
    condition = StopCondition.from_text(text)
    assert all(condition.is_met({"loss": value, "bias": 0}) for value in met)
    assert not any(condition.is_met({"loss": value, "bias": 0}) for value in (*unmet, math.nan))
    assert not condition.is_met({"bias": met[0]})


@pytest.mark.parametrize("replication", REPLICATIONS)
def test_pull_ahead_is_refused_unless_the_replication_is_async(replication: str) -> None:
    told = {"replication": replication, "pull_ahead": True}
    said = f"-pull_ahead is true with -replication {replication!r}; expected false, or -replication async"
    refused = {} if replication == "async" else {"pull_ahead": said}
    assert replication_problems(told, 2, "-") == refused
    assert replication_problems(told | {"pull_ahead": False}, 2) == {}


@pytest.mark.parametrize("replication", REPLICATIONS)
@pytest.mark.parametrize("optimizer", [None, *OPTIMIZERS])
def test_damped_steps_are_refused_unless_replication_and_optimizer_have_them(
    replication: str, optimizer: str | None
) -> None:
    told = {"replication": replication, "optimizer": optimizer, "staleness": "damped"}
    of_replication = f"replication {replication!r}; expected plain, or -replication async"
    of_optimizer = f"optimizer {optimizer!r}; expected plain, or -optimizer momentum or adam"
    without = optimizer in {"sgd", "adagrad", "ftrl"}
    refused = of_replication if replication != "async" else of_optimizer if without else ""
    said = {"staleness": f"-staleness is 'damped' with -{refused}"} if refused else {}
    assert replication_problems(told, 2, "-") == said
    assert replication_problems(told | {"staleness": "plain"}, 2) == {}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (("async", 1, None), {}),
        (("async", 8, None), {}),
        (("sync", 8, 8), {}),
        (("in_graph", 8, None), {}),
        (("async", 4, 12), {}),
        (
            ("async", 4, 10),
            {"pull_every": "-pull_every is 10 with -push_every 4; expected null, or a multiple of 4"},
        ),
        (
            ("sync", 4, 3),
            {"pull_every": "-pull_every is 3 with -push_every 4; expected null, or a multiple of 4"},
        ),
        *(
            (
                (replication, 4, 8),
                {
                    "pull_every": f"-pull_every is 8 with -push_every 4 and -replication {replication!r}, "
                    "which pulls for each step; expected null, or -replication async"
                },
            )
            for replication in ("sync", "in_graph")
        ),
        (
            ("local", 8, None),
            {
                "push_every": "-push_every is 8 with -replication 'local', which pushes to no server; "
                "expected 1, or another replication"
            },
        ),
    ],
)
def test_a_worker_pushes_and_pulls_as_rarely_as_its_replication_allows(
    told: tuple[str, int, int | None], said: dict[str, str]
) -> None:
    settings = dict(zip(("replication", "push_every", "pull_every"), told, strict=True))
    assert replication_problems(settings, 2, "-") == said
    # A step with pull_ahead pulls, whatever the step before did.
    ahead = replication_problems(settings | {"pull_ahead": True}, 2, "-")
    refused = told == ("async", 4, 12)
    assert ("-pull_ahead true, which pulls for each step" in ahead.get("pull_every", "")) == refused


@pytest.mark.parametrize(
    ("told", "of_a_pull", "of_a_call"),
    [
        ((10, 1, None), 1, 10),
        ((10, 1, 1), 1, 10),
        ((10, 4, None), 1, 2),
        ((10, 16, None), 1, 1),
        ((10, 2, 4), 2, 4),
        ((10, 2, 6), 3, 3),
        ((1, 2, 64), 32, 32),
    ],
)
def test_a_call_has_whole_pulls_and_counts_batches(
    told: tuple[int, int, int | None], of_a_pull: int, of_a_call: int
) -> None:
    per_call, push_every, pull_every = told
    settings = TrainingSettings(steps_per_call=per_call, push_every=push_every, pull_every=pull_every)
    assert (settings.steps_of_a_pull, settings.most_steps_in_a_call) == (of_a_pull, of_a_call)


NOT_SYNC = "-replicas_to_aggregate is 3 with -replication {!r}; expected null, or -replication sync"
TOO_MANY = "-replicas_to_aggregate is 3; expected at most 2, the number of workers"
NO_SERVERS = "-existing_servers is true with -replication 'local', which has no servers; expected false, or "


@pytest.mark.parametrize(
    ("asked", "workers", "gradients", "said"),
    [
        (("sync", None, True), 5, 5, []),
        (("sync", 3, True), 3, 3, []),
        (("sync", 3, True), None, 3, []),
        (("sync", 3, False), 2, 3, [TOO_MANY]),
        (("in_graph", None, True), 5, 5, []),
        (("in_graph", 3, True), 2, 2, [NOT_SYNC.format("in_graph")]),
        (("async", 3, True), 3, 1, [NOT_SYNC.format("async")]),
        (("local", None, False), 1, 1, []),
        (("local", 3, True), 2, 1, [NOT_SYNC.format("local"), f"{NO_SERVERS}another replication"]),
    ],
)
def test_each_replication_has_its_number_of_gradients_in_a_step_and_its_limits(
    asked: tuple[object, ...], workers: int | None, gradients: int, said: list[str]
) -> None:
    told = dict(zip(("replication", "replicas_to_aggregate", "existing_servers"), asked, strict=True))
    assert TrainingSettings.from_mapping(told).gradients_in_a_step(workers or 0) == gradients
    found = replication_problems(told, workers, "-")
    assert found == {text[1:].partition(" ")[0]: text for text in said}
    bare = {name: text.replace("-", "") for name, text in found.items()}
    assert replication_problems(told, workers) == bare
