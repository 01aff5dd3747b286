import pytest

from trainer.contract.program_arguments import filled, misspelled, placeholders

VALUES = {"data_dir": "/data", "run_dir": "/var/lib/psfleet/runs/night", "task_index": "1"}


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("--data={data_dir}/train.csv", "--data=/data/train.csv"),
        ("{run_dir}/output/worker{task_index}", "/var/lib/psfleet/runs/night/output/worker1"),
        ("--file=\\{data_dir}/{data_dir}", "--file={data_dir}//data"),
        ("\\{datadir}", "{datadir}"),
        # The program's own.
        ('{"data_dir": 3, "a": {"b": {}}}', '{"data_dir": 3, "a": {"b": {}}}'),
        ("ckpt-{epoch}-{val_loss:.2f}-{}-{0}", "ckpt-{epoch}-{val_loss:.2f}-{}-{0}"),
        (r"\frac{a}{b} \{x} {{y}}", r"\frac{a}{b} \{x} {{y}}"),
    ],
)
def test_known_placeholders_are_filled_and_escaped_or_unknown_ones_stay(argument: str, given: str) -> None:
    assert filled(argument, VALUES) == given


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("--a={datadir} {data-dir}", {"datadir": "data_dir", "data-dir": "data_dir"}),
        ("{taskindex}{rundir}", {"taskindex": "task_index", "rundir": "run_dir"}),
        ("\\{datadir}{data_dir}", {}),
        ('{epoch} {task} {index} {run_id} {dir} {data} {batch_size} {"data_dirs": 1}', {}),
    ],
)
def test_a_placeholder_close_to_a_known_name_counts_as_misspelled(
    argument: str, meant: dict[str, str]
) -> None:
    assert misspelled(argument) == meant
    assert placeholders(argument) == ({"data_dir"} if "{data_dir}" in argument else set())
