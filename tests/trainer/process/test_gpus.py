"""Tasks with GPUs on a machine without CUDA in TensorFlow, and the placement of operations."""

from pathlib import Path

import pytest
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import CONFIGURATION
from trainer.contract.records import RecordWriter
from trainer.coordination.bounded_calls import runtime_config
from trainer.coordination.running_task import RunningTask
from trainer.engine.replication import build_graph
from trainer.model.checkpoints import tensors_to_save
from trainer.model.models import REGISTRY
from trainer.process import gpus
from trainer.process.flags import parse

PS_0, PS_1 = "/job:ps/task:0/device:CPU:0", "/job:ps/task:1/device:CPU:0"
HOSTS = ["--ps_hosts=a:1,b:2", "--worker_hosts=c:1,d:2"]
HELD = {"VarHandleOp", "ResourceConditionalAccumulator", "ConditionalAccumulator", "MutexV2"}
READ = {"IteratorV2", "IteratorGetNext", "MakeIterator"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()),
        ("", ()),
        ("-1", ()),
        ("0", ("0",)),
        ("2,0", ("2", "0")),
        ("1,-1,0", ("1",)),
        (" 3 ,", ("3",)),
    ],
)
def test_the_visible_gpus_are_parsed_as_cuda_does(value: str | None, expected: tuple[str, ...]) -> None:
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert gpus.visible_devices(environment) == expected


def test_gpus_are_ordered_by_bus_unless_the_environment_sets_an_order() -> None:
    environment: dict[str, str] = {}
    gpus.prepare(environment)
    assert environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    gpus.prepare(told := {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert told == {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}


def test_a_task_that_does_not_see_its_gpus_does_not_join(tmp_path: Path) -> None:
    with Cluster(tmp_path, ps=1, workers=1) as cluster:
        cluster.environment = {"CUDA_VISIBLE_DEVICES": "0,1"}
        cluster.start()
        assert cluster.wait() == dict.fromkeys(cluster.tasks, CONFIGURATION)
        for task in cluster.tasks:
            (failed,) = cluster.records(task)
            assert (failed.event, failed.text("class")) == ("failed", "configuration")
            reason = failed.text("reason")
            found = "was given GPUs 0, 1 (CUDA_VISIBLE_DEVICES), and TensorFlow sees none"
            assert reason.startswith(f"{task} {found}: this TensorFlow is built without CUDA; run deploy.yml")
            assert "`ansible-playbook doctor.yml`" in reason
            assert reason in cluster.output(task)


def test_gpu_memory_grows_unless_a_fraction_is_set() -> None:
    assert runtime_config().gpu_options.allow_growth is True
    taken = runtime_config(threads=3, gpu_memory_fraction=0.25, filters=["/job:ps"])
    assert (taken.gpu_options.allow_growth, taken.gpu_options.per_process_gpu_memory_fraction) == (
        False,
        0.25,
    )
    assert (taken.intra_op_parallelism_threads, taken.inter_op_parallelism_threads) == (3, 3)
    assert list(taken.device_filters) == ["/job:ps"]


@pytest.mark.parametrize(("devices", "is_on"), [("", False), ("-1", False), ("0", True), ("0,1", True)])
def test_all_parts_of_the_graph_optimizer_are_on_only_for_gpus(
    monkeypatch: pytest.MonkeyPatch, devices: str, is_on: bool
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    rewriting = runtime_config().graph_options.rewrite_options
    parts = (rewriting.layout_optimizer, rewriting.constant_folding, rewriting.arithmetic_optimization)
    assert set(parts) == {RewriterConfig.DEFAULT if is_on else RewriterConfig.OFF}
    assert (rewriting.remapping == RewriterConfig.ON) is not is_on


def test_a_task_uses_the_configured_fraction_of_gpu_memory() -> None:
    options = parse(["--job_name=local", "--gpu_memory_fraction=0.5"])
    task = RunningTask(options, RecordWriter(None, options.identity))
    task.join_cluster()
    assert task.server is not None
    given = task.server.server_def.default_session_config
    assert given.gpu_options.per_process_gpu_memory_fraction == 0.5


@pytest.mark.parametrize("replication", ["async", "sync", "in_graph"])
@pytest.mark.parametrize("model", ["mnist_mlp", "placement_demo"])
def test_the_graph_of_a_cluster_places_variables_and_data_on_cpus(replication: str, model: str) -> None:
    """Without a device type TensorFlow would choose a GPU if the task has one."""
    flags = [*HOSTS, f"--replication={replication}", f"--model={model}", "--optimizer=adam"]
    options = parse(["--job_name=worker", "--task_index=0", *flags, "--steps_per_call=2"])
    task = RunningTask(options, RecordWriter(None, options.identity))
    data = REGISTRY[model].load(options.settings, 2)
    operations = build_graph(task, REGISTRY[model], data).graph.get_operations()
    held = {operation.device for operation in operations if operation.type in HELD}
    workers = {f"/job:worker/task:{worker}/device:CPU:0" for worker in (0, 1)}
    assert {PS_0, PS_1} <= held <= {PS_0, PS_1} | workers  # towers are counted on their worker
    read = {operation.device for operation in operations if operation.type in READ}
    assert read == (workers if replication == "in_graph" else {"/job:worker/task:0/device:CPU:0"})
    # Computations of a step may be placed on a worker's GPU.
    products = {operation.device for operation in operations if operation.type == "MatMul"}
    assert not any("CPU" in device for device in products), products


def test_a_local_run_may_place_its_variables_on_a_gpu() -> None:
    """An operation that names the CPU and uses a variable would force the variable onto the CPU."""
    options = parse(["--job_name=local", "--model=mnist_mlp", "--optimizer=adam", "--steps_per_call=2"])
    task = RunningTask(options, RecordWriter(None, options.identity))
    model = REGISTRY["mnist_mlp"]
    training = build_graph(task, model, model.load(options.settings, 1))
    with training.graph.as_default():
        tensors_to_save(training.variables, "/job:worker/task:0/device:CPU:0")
    handles = {variable.handle.ref() for variable in training.saved_parameters}
    users = [
        operation
        for operation in training.graph.get_operations()
        if any(tensor.ref() in handles for tensor in operation.inputs)
    ]
    assert len(users) > 3 * len(handles)
    on_a_cpu = [user.name for user in users if "CPU" in user.device]
    assert on_a_cpu == []
    computed = {fetch.device for fetch in training.fingerprint.fetches}
    assert all(device.endswith("CPU:0") for device in computed), computed


def test_a_program_finds_the_cuda_wheels_of_its_own_environment(tmp_path: Path) -> None:
    own = tmp_path / "lib/python3.11/site-packages/nvidia"
    for name in ("cudnn/lib", "cublas/lib", "cuda_nvcc/bin"):
        (own / name).mkdir(parents=True)
    shared = "/opt/psfleet/environment/lib/python3.11/site-packages/nvidia"
    inherited = {"LD_LIBRARY_PATH": f"{shared}/cudnn/lib", "PATH": f"{shared}/cuda_nvcc/bin:/usr/bin:/bin"}
    assert gpus.cuda_of_environment(tmp_path, inherited) == {
        "LD_LIBRARY_PATH": f"{own}/cublas/lib:{own}/cudnn/lib",
        "PATH": f"{own}/cuda_nvcc/bin:/usr/bin:/bin",
        "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={own}/cuda_nvcc",
    }
    # The host's own CUDA, and no GPU.
    for libraries in ("/usr/local/cuda/lib64", ""):
        assert gpus.cuda_of_environment(tmp_path, inherited | {"LD_LIBRARY_PATH": libraries}) == {}
    assert gpus.cuda_of_environment(tmp_path / "lib", inherited) == {}
