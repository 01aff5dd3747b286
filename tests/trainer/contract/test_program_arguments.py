import pytest

from trainer.contract.program_arguments import fill_placeholders, misspelled, placeholders

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
    assert fill_placeholders(argument, VALUES) == given


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("--a={datadir} {data-dir}", {"datadir": "data_dir", "data-dir": "data_dir"}),
        ("{taskindex}{rundir}", {"taskindex": "task_index", "rundir": "run_dir"}),
        ("{jobname} {JOB_NAME} {job}", dict.fromkeys(("jobname", "JOB_NAME", "job"), "job_name")),
        ("{ps_host} {ps} {workers}", {"ps_host": "ps_hosts", "ps": "ps_hosts", "workers": "worker_hosts"}),
        ("{cluster_spec} {clusters}", dict.fromkeys(("cluster_spec", "clusters"), "cluster")),
        ("{job_name}{cluster_file}{data_dir}{task_port}", {}),
        ("\\{datadir}{data_dir}", {}),
        ('{epoch} {task} {index} {run_id} {dir} {data} {batch_size} {"data_dirs": 1}', {}),
    ],
)
def test_a_placeholder_close_to_a_known_name_counts_as_misspelled(
    argument: str, meant: dict[str, str]
) -> None:
    assert misspelled(argument) == meant
    assert ("data_dir" in placeholders(argument)) == ("{data_dir}" in argument)
