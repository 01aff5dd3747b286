"""The device report of a step that ran on two ps and two workers, and the text over the reports of a run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from psfleet.report.devices import main, render
from tests.repository import ROOT
from tests.trainer.ports import free_ports
from trainer.contract.settings import TrainingSettings
from trainer.engine.device_report import group_of, report, write
from trainer.model.data import batches
from trainer.model.models import REGISTRY
from trainer.model.models.model import Devices, ModelContext

v1 = tf.compat.v1

PS = [f"/job:ps/replica:0/task:{index}/device:CPU:0" for index in range(2)]
WORKER = "/job:worker/replica:0/task:1/device:CPU:0"


@pytest.fixture(scope="module")
def cluster() -> tf.train.ClusterSpec:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(4)]
    return tf.train.ClusterSpec({"ps": addresses[:2], "worker": addresses[2:]})


@pytest.fixture(scope="module")
def target(cluster: tf.train.ClusterSpec) -> str:
    """Worker 1's server, in a cluster of four."""
    servers = {
        (job, task): v1.train.Server(cluster, job_name=job, task_index=task)
        for job in ("ps", "worker")
        for task in (0, 1)
    }
    return str(servers["worker", 1].target)


def _report_of_a_step(cluster: tf.train.ClusterSpec, target: str, model_name: str) -> dict[str, Any]:
    settings, model = TrainingSettings(model=model_name), REGISTRY[model_name]
    data = model.load(settings, 2)
    worker = "/job:worker/task:1"
    context = ModelContext(settings, data, Devices(("/job:ps/task:0", "/job:ps/task:1"), worker))
    with tf.Graph().as_default() as graph:
        with v1.device(v1.train.replica_device_setter(worker_device=worker, cluster=cluster)):
            counters = v1.get_variable("psfleet/counters", [2], tf.int64, v1.zeros_initializer())
            variables = model.create_variables(context)
            dataset, feeds = batches(data.train, 10, 1)
            iterator = v1.data.make_initializable_iterator(dataset)
            loss = model.loss(context, variables, *iterator.get_next())
            applied = v1.train.AdamOptimizer().minimize(loss, var_list=list(variables))
            with tf.device(counters.device):
                global_step = counters.read_value()[0]
        options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
        with v1.Session(target, graph=graph) as session:
            session.run([v1.global_variables_initializer(), iterator.initializer], feeds)
            session.run([loss, applied, global_step], options=options, run_metadata=metadata)
    return report("worker1", metadata.partition_graphs)


@pytest.fixture(scope="module")
def placed(cluster: tf.train.ClusterSpec, target: str) -> dict[str, Any]:
    return _report_of_a_step(cluster, target, "placement_demo")


def test_the_report_places_variables_where_the_model_put_them(placed: dict[str, Any]) -> None:
    variables = placed["variables"]
    assert variables["matrix"] == variables["matrix/Adam"] == PS[0]
    assert variables["offset"] == variables["offset/Adam_1"] == PS[1]
    assert variables["psfleet/counters"] == PS[0]


def test_the_report_counts_operations_on_the_device_that_ran_them(placed: dict[str, Any]) -> None:
    operations = placed["operations"]
    assert set(operations) == {*PS, WORKER}
    assert operations[PS[0]]["multiplication_on_ps"] == 1
    assert operations[WORKER]["addition_on_worker"] == 1
    assert "addition_on_worker" not in operations[PS[0]]
    assert operations[PS[0]]["optimizer"] >= 1
    assert operations[PS[1]]["optimizer"] >= 1
    assert "optimizer" not in operations[WORKER]
    assert operations[WORKER]["input"] == 2
    assert operations[WORKER]["gradients"] > 1
    assert operations[PS[0]]["ledger"] == 2
    assert operations[WORKER]["transfers"] > 4


def test_an_addition_that_tensorflow_merged_is_counted_on_the_device_that_ran_it(target: str) -> None:
    """TensorFlow adds a row to a product within the multiplication, whatever device the graph requests."""
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            product = tf.matmul(v1.placeholder_with_default(tf.ones([2, 3]), [2, 3]), tf.ones([3, 4]))
        with tf.device("/job:worker/task:1"):
            row = v1.placeholder_with_default(tf.ones([4]), [4])
            found = tf.square(tf.nn.bias_add(product, row, name="asked_for_on_worker"))
        options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
        with v1.Session(target, graph=graph) as session:
            session.run(found, options=options, run_metadata=metadata)
    operations = report("worker1", metadata.partition_graphs)["operations"]
    assert operations[PS[0]]["asked_for_on_worker"] == 1
    assert "asked_for_on_worker" not in operations[WORKER]
    assert operations[WORKER]["Square"] == 1


@pytest.mark.parametrize(
    ("name", "operation", "inputs", "group"),
    [
        ("tower_1/gradients/MatMul_grad/MatMul_1", "MatMul", ["a"], "gradients"),
        ("tower_1/MatMul_2", "MatMul", ["a"], "MatMul"),
        ("conv/Relu_3", "Relu", ["a"], "conv"),
        ("MatMul/ReadVariableOp", "ReadVariableOp", ["hidden/weights"], "variable reads"),
        ("Read_1/ReadVariableOp", "ReadVariableOp", ["psfleet/counters"], "ledger"),
        ("MatMul/ReadVariableOp_S0", "Identity", ["a"], "transfers"),
        ("x", "_Recv", [], "transfers"),
        ("ConstantFolding/mul_recip", "Mul", ["a"], "rewritten by TensorFlow"),
        ("GradientDescent/update_a/ResourceApplyGradientDescent", "ResourceApply", ["a"], "optimizer"),
        ("Momentum/update_a/ResourceApplyMomentum", "ResourceApply", ["a"], "optimizer"),
        ("Adagrad_1/update_a/ResourceApplyAdagrad", "ResourceApply", ["a"], "optimizer"),
        ("Ftrl/update_a/ResourceApplyFtrl", "ResourceApplyFtrl", ["a"], "optimizer"),
        ("wire_3/concat", "ConcatV2", ["a"], "transfers"),
        ("MutexV2", "MutexV2", [], "aggregation"),
        ("aggregation_1/AddN", "AddN", ["a"], "aggregation"),
        ("apply_grad", "ResourceAccumulatorApplyGradient", ["a"], "aggregation"),
    ],
)
def test_an_operation_is_grouped_by_its_purpose(
    name: str, operation: str, inputs: list[str], group: str
) -> None:
    assert group_of(name, operation, inputs) == group


def _as_worker(content: dict[str, Any], index: int) -> dict[str, Any]:
    text = json.dumps(content).replace("/job:worker/replica:0/task:1", f"/job:worker/replica:0/task:{index}")
    return {**json.loads(text), "task": f"worker{index}"}


def test_the_text_shows_each_device_once(tmp_path: Path, placed: dict[str, Any]) -> None:
    for index in (0, 1, 2, 3, 10):
        write(tmp_path / f"devices/worker{index}.json", _as_worker(placed, index))
    text = render(tmp_path)
    assert text.count("multiplication_on_ps") == 1
    assert "ps0 CPU:0  beta1_power, beta2_power, matrix (+ Adam, Adam_1), psfleet/counters" in text
    assert "ps1 CPU:0  offset (+ Adam, Adam_1)" in text
    assert (
        "Operations in the graph of worker0; the same, with a device of its own, in that of worker1" in text
    )
    assert "Variables, as worker0, worker1 ... worker10 (5 tasks) used them" in text
    assert max(map(len, text.splitlines())) <= 118


def test_the_text_shows_a_worker_that_differs_and_variables_that_are_not_shared(
    tmp_path: Path, placed: dict[str, Any]
) -> None:
    other = _as_worker(placed, 0)
    other["variables"]["matrix"] = PS[1]
    other["operations"] = {WORKER.replace("task:1", "task:0").replace("CPU", "GPU"): {"multiplication": 2}}
    write(tmp_path / "devices/worker0.json", other)
    write(tmp_path / "devices/worker1.json", placed)
    text = render(tmp_path)
    assert "matrix (says worker0)" in text
    assert "matrix (says worker1)" in text
    assert "worker0 GPU:0  model: multiplication x 2" in text
    assert "Operations in the graph of worker1" in text


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"task": "worker1"}', '{"task": "x", "variables": {}, "operations": {"d": 3}}']
)
def test_a_damaged_report_is_named_and_the_remaining_reports_are_shown(
    tmp_path: Path, placed: dict[str, Any], content: str
) -> None:
    write(tmp_path / "devices/worker1.json", placed)
    (tmp_path / "devices/worker2.json").write_text(content)
    text = render(tmp_path)
    assert f"{tmp_path}/devices/worker2.json cannot be read" in text
    assert "multiplication_on_ps" in text


def test_text_from_a_host_is_made_printable(tmp_path: Path) -> None:
    content = {"task": "worker1", "variables": {"a\x1b[31m": PS[0]}, "operations": {}}
    write(tmp_path / "devices/worker1.json", content)
    assert "\x1b" not in render(tmp_path)


def test_the_command_needs_no_tensorflow(tmp_path: Path, placed: dict[str, Any]) -> None:
    write(tmp_path / "devices/worker1.json", placed)
    guard = "import sys; sys.modules['tensorflow'] = None; sys.modules['numpy'] = None;"
    command = f"{guard} from psfleet.report.devices import main; main(sys.argv[1:])"
    shown = subprocess.run(
        [sys.executable, "-c", command, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == render(tmp_path)


def test_the_command_reports_a_folder_without_device_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 0
    assert "holds no device report" in capsys.readouterr().out


def test_a_report_that_cannot_be_written_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "devices").write_text("a file where the folder should be")
    write(tmp_path / "devices/worker0.json", {})
    assert "The device report cannot be written" in capsys.readouterr().out
