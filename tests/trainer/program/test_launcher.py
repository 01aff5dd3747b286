"""The launcher's input to a program, and its handling of the program's end."""

import json
import os
import pwd
import socket
import sys
import threading
from pathlib import Path

import pytest

from tests.networks import socket_of
from tests.trainer.processes import until
from tests.trainer.program.launched import AS_ON_HOSTS, PLAN_HASH, RUN_ID, Tasks, alive, program, run_alone
from trainer.contract.exit_codes import (
    CLUSTER_BROKE,
    CONFIGURATION,
    FINISHED,
    OUT_OF_MEMORY,
    PROGRAM,
    STOPPED,
    USAGE,
)
from trainer.contract.settings import TrainingSettings
from trainer.host.task_traces import written_exit_code
from trainer.process.failure import memory_remedy
from trainer.program import child_process, launcher
from trainer.program.child_process import ProgramProcess

SANDBOX = "the sandbox of a task refuses some calls: docs/programs.md, What a task may not do"
TELL = """
    import json, os, sys
    told = {"arguments": sys.argv[1:], "path": sys.path[:1], "cwd": os.getcwd()}
    told["environment"] = dict(os.environ)
    told["group"] = os.getpgid(0) == os.getpid()
    told["launcher"] = open(f"/proc/{os.getppid()}/statm").read()
    json.dump(told, open("told.json", "w"))
"""


def told(tasks: Tasks, name: str) -> dict[str, object]:
    content: dict[str, object] = json.loads((tasks.directory(name) / "told.json").read_text())
    return content


def test_a_program_gets_the_documented_flags_and_environment(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path / "code", TELL), ps=1, worker=2) as tasks:
        tasks.arguments = ["--epochs=3", "two words", "{data_dir}/{task_index}", "{run_dir}", '{"a": {}}']
        tasks.environment = {"CUDA_VISIBLE_DEVICES": "-1"}
        tasks.start("worker1", options=["--batch_size=7", "--threads=2", "--data_dir=/data", "--seed=5"])
        assert tasks.wait() == {"worker1": FINISHED}
        ps, workers = tasks.cluster["ps"], tasks.cluster["worker"]
        found = told(tasks, "worker1")
        hosts = [f"--ps_hosts={ps[0]}", f"--worker_hosts={workers[0]},{workers[1]}"]
        flags = ["--job_name=worker", "--task_index=1", *hosts]
        assert found["arguments"] == [
            *flags,
            *("--epochs=3", "two words", "/data/1", str(tasks.directory("worker1")), '{"a": {}}'),
        ]
        assert found["cwd"] == str(tasks.directory("worker1"))
        assert found["path"] == [str(tmp_path / "code")]
        assert found["group"] is True
        pages = int(str(found["launcher"]).split()[1])
        assert pages * os.sysconf("SC_PAGE_SIZE") < 100e6, "TensorFlow takes several times that"
        environment = found["environment"]
        assert isinstance(environment, dict)
        expected = {
            "TF_CONFIG": json.dumps({"cluster": tasks.cluster, "task": {"type": "worker", "index": 1}}),
            "PSFLEET_RUN_ID": RUN_ID,
            "PSFLEET_RUN_DIRECTORY": str(tasks.directory("worker1")),
            "PSFLEET_JOB": "worker",
            "PSFLEET_TASK_INDEX": "1",
            "PSFLEET_PLAN_HASH": PLAN_HASH,
            "PSFLEET_PROGRAM_RELEASE": "c0ffee",
            "PSFLEET_BATCH_SIZE": "7",
            "PSFLEET_THREADS": "2",
            "PSFLEET_DATA_DIR": "/data",
            "PSFLEET_SEED": "5",
            "CUDA_VISIBLE_DEVICES": "-1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            "PSFLEET_GPU_MEMORY_FRACTION": "",
            "PYTHONPATH": f"{launcher.OBSERVED}:{launcher.LIBRARY}:{AS_ON_HOSTS}",
            "PYTHONUNBUFFERED": "1",
            "MIXED_CASE_of_mine": "two words",
        }
        assert {name: environment.get(name) for name in expected} == expected


def test_a_program_without_flags_gets_only_its_arguments(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, TELL), chief=1, worker=1) as tasks:
        tasks.flags, tasks.arguments = False, ["--x"]
        tasks.start("chief0", options=["--gpu_memory_fraction=0.5"])
        assert tasks.wait() == {"chief0": FINISHED}
        assert told(tasks, "chief0")["arguments"] == ["--x"]
        environment = told(tasks, "chief0")["environment"]
        assert isinstance(environment, dict)
        settings = TrainingSettings()
        assert environment["PSFLEET_BATCH_SIZE"] == str(settings.batch_size)
        assert (environment["PSFLEET_THREADS"], environment["PSFLEET_DATA_DIR"]) == ("", "")
        assert environment["PSFLEET_GPU_MEMORY_FRACTION"] == "0.5"
        assert "TF_FORCE_GPU_ALLOW_GROWTH" not in environment


def test_a_program_runs_with_the_python_of_its_own_environment(tmp_path: Path) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    tasks = run_alone(tmp_path, "import sys; print(sys.executable)", PSFLEET_PROGRAM_PYTHON=str(python))
    assert str(python) in tasks.output("worker0")


def test_a_program_in_a_subfolder_imports_packages_of_its_folder(tmp_path: Path) -> None:
    """`python -m trainer.task`, typed in a repository, finds the package `trainer` there."""
    program(tmp_path, "NAME = 'found'", "c0ffee/package/words.py")
    task = program(tmp_path, "from package.words import NAME; print(NAME)", "c0ffee/package/task.py")
    with Tasks(tmp_path, task, worker=1) as tasks:
        tasks.start()
        assert tasks.wait() == {"worker0": FINISHED}, tasks.outputs()
        assert "found" in tasks.output("worker0")


def test_only_programs_have_the_job_chief(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, TELL), chief=1, worker=1) as tasks:
        tasks.start("chief0", options=["--program="])
        assert tasks.wait() == {"chief0": USAGE}
        assert "--job_name is 'chief'" in tasks.output("chief0")


@pytest.mark.parametrize(
    ("text", "code", "phase", "reason"),
    [
        ("pass", FINISHED, "finished", ""),
        ("raise SystemExit(66)", 66, "failed", "the program ended with exit code 66"),
        ("raise SystemExit(1)", 1, "failed", "the program ended with exit code 1"),
        (
            "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('first\\nsecond') from e",
            PROGRAM,
            "failed",
            "ValueError: first\nsecond",
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            139,
            "failed",
            "the program was killed by SIGSEGV",
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            137,
            "failed",
            "the program was killed by SIGKILL, as the kernel does where memory runs out",
        ),
        ("raise MemoryError", OUT_OF_MEMORY, "failed", f"MemoryError\n{memory_remedy()}"),
        (
            "import tensorflow.examples",
            PROGRAM,
            "failed",
            "ModuleNotFoundError: No module named 'tensorflow.examples'\n(if it is of TensorFlow 1: "
            "trainer_program_tensorflow1: true, docs/port-a-script.md)",
        ),
        (
            "import socket; socket.socket(socket.AF_X25, socket.SOCK_SEQPACKET)",
            PROGRAM,
            "failed",
            f"OSError: [Errno 97] Address family not supported by protocol\n({SANDBOX})",
        ),
        (
            "open('/run/service/socket')",
            PROGRAM,
            "failed",
            f"FileNotFoundError: [Errno 2] No such file or directory: '/run/service/socket'\n({SANDBOX})",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", STOPPED, "stopped", ""),
    ],
)
def test_the_exit_code_of_a_program_is_passed_on_with_its_reason(
    tmp_path: Path, text: str, code: int, phase: str, reason: str
) -> None:
    tasks = run_alone(tmp_path, text, code)
    progress = tasks.progress("worker0")
    assert (progress["phase"], progress["reason"], progress["run_id"]) == (phase, reason, RUN_ID)
    assert progress["global_step"] == progress["last_step"] == 0
    assert reason in tasks.output("worker0")
    # systemd forgets a unit that ended well.
    assert written_exit_code(tasks.directory("worker0"), "worker0") == code


def test_a_lost_task_has_another_exit_code_than_a_bug(tmp_path: Path) -> None:
    lost = """
        import tensorflow as tf
        raise tf.errors.UnavailableError(None, None, "Socket closed")
    """
    tasks = run_alone(tmp_path, lost, CLUSTER_BROKE)
    assert "UnavailableError: Socket closed" in str(tasks.progress("worker0")["reason"])


def test_a_missing_program_is_named_with_the_remedy(tmp_path: Path) -> None:
    with Tasks(tmp_path, tmp_path / "gone.py", worker=1) as tasks:
        tasks.start()
        assert tasks.wait() == {"worker0": CONFIGURATION}
        reason = str(tasks.progress("worker0")["reason"])
        assert f"{tmp_path / 'gone.py'} is not on this host" in reason
        assert "c0ffee" in reason
        assert "run deploy.yml" in reason
        assert tasks.progress("worker0")["phase"] == "failed"


def test_a_program_with_gpus_does_not_start_without_a_driver(tmp_path: Path) -> None:
    tasks = run_alone(tmp_path, TELL, CONFIGURATION, CUDA_VISIBLE_DEVICES="1,3")
    reason = str(tasks.progress("worker0")["reason"])
    assert reason.startswith("worker0 was given GPUs 1, 3 (CUDA_VISIBLE_DEVICES), and NVIDIA's driver")
    assert "libcuda.so.1" in reason
    assert not (tasks.directory("worker0") / "told.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes another user's socket")
def test_a_program_is_not_started_if_another_user_holds_its_port(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, TELL), worker=1) as tasks:
        with socket_of(pwd.getpwnam("nobody").pw_uid, socket.AF_INET) as stranger:
            stranger.bind(("127.0.0.1", 0))
            stranger.listen()
            port = stranger.getsockname()[1]
            tasks.cluster = {"worker": [f"127.0.0.1:{port}"]}
            tasks.start()
            assert tasks.wait() == {"worker0": CLUSTER_BROKE}
        reason = str(tasks.progress("worker0")["reason"])
        assert reason.startswith(f"worker0 cannot listen on port {port}, held by user nobody, by ")
        assert not (tasks.directory("worker0") / "told.json").exists()


def test_a_damaged_description_is_named(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"release": "c0ffee"}')
    tasks = run_alone(tmp_path, "pass", CONFIGURATION, f"--program={damaged}")
    assert f"{damaged} cannot be read (file is missing; " in tasks.output("worker0")


def test_sigterm_reaches_the_program_which_may_save_first(tmp_path: Path) -> None:
    text = """
        import pathlib, signal, sys, time
        def save(number, frame):
            pathlib.Path("saved").touch()
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        pathlib.Path("here").touch()
        time.sleep(100)
    """
    with Tasks(tmp_path, program(tmp_path, text), worker=1) as tasks:
        tasks.start()
        tasks.until((tasks.directory("worker0") / "here").exists, "the program")
        assert tasks.progress("worker0")["phase"] == "training"
        assert tasks.stop("worker0") == {"worker0": FINISHED}
        assert (tasks.directory("worker0") / "saved").exists()
        assert tasks.progress("worker0")["phase"] == "stopped"


def test_a_program_that_ends_while_its_host_shuts_down_counts_as_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit code is replaced: a unit with exit code 0 would not start again after the boot."""
    shutdown = tmp_path / "shutdown"
    monkeypatch.setenv("PSFLEET_SHUTDOWN_FILE", str(shutdown))
    text = """
        import pathlib, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        pathlib.Path("here").touch()
        time.sleep(100)
    """
    with Tasks(tmp_path, program(tmp_path, text), worker=1) as tasks:
        tasks.start()
        tasks.until((tasks.directory("worker0") / "here").exists, "the program")
        shutdown.touch()
        assert tasks.stop("worker0") == {"worker0": STOPPED}
        assert tasks.progress("worker0")["phase"] == "training"


def test_a_program_that_ignores_sigterm_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
        import pathlib, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        pathlib.Path("child").write_text(str(child.pid))
        pathlib.Path("here").touch()
        time.sleep(300)
    """
    monkeypatch.setattr(child_process, "_SECONDS_TO_STOP", 0.5)
    process = ProgramProcess([sys.executable, str(program(tmp_path, text))], os.environ, tmp_path)
    stop = threading.Event()
    ending = process.wait(stop, lambda: stop.set() if (tmp_path / "here").exists() else None)
    assert (ending.code, ending.phase) == (STOPPED, "stopped")
    child = int((tmp_path / "child").read_text())
    until(lambda: not alive(child), "the end of the grandchild")


def test_a_program_cannot_write_its_launchers_memory(tmp_path: Path) -> None:
    """Systemd trusts the launcher; as on hosts, neither process has a capability."""
    text = """
        import os
        for own, path in ((True, f"/proc/{os.getpid()}/mem"), (False, f"/proc/{os.getppid()}/mem")):
            try:
                open(path, "r+b").close()
                print("wrote", own)
            except PermissionError:
                print("kept out of", own)
    """
    with Tasks(tmp_path, program(tmp_path, text), worker=1) as tasks:
        if os.geteuid() == 0:
            tasks.before = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        tasks.start()
        assert tasks.wait() == {"worker0": FINISHED}
        said = tasks.output("worker0").splitlines()
        assert [line for line in said if line.endswith(("True", "False"))] == [
            "wrote True",
            "kept out of False",
        ]


def test_a_process_that_the_program_leaves_behind_is_ended(tmp_path: Path) -> None:
    text = """
        import pathlib, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        pathlib.Path("child").write_text(str(child.pid))
    """
    tasks = run_alone(tmp_path, text)
    child = int((tasks.directory("worker0") / "child").read_text())
    tasks.until(lambda: not alive(child), "the end of the grandchild")


def test_only_the_launcher_notifies_systemd(tmp_path: Path) -> None:
    text = """
        import os, pathlib, time
        while not pathlib.Path("heard").exists():
            time.sleep(0.1)
        print("socket:", os.environ.get("NOTIFY_SOCKET"))
    """
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        Tasks(tmp_path, program(tmp_path, text), worker=1) as tasks,
    ):
        manager.bind(str(tmp_path / "notify"))
        tasks.environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000"}
        tasks.start()
        manager.settimeout(60)
        assert manager.recv(1000).decode() == "READY=1\nSTATUS=running main.py"
        assert [manager.recv(1000), manager.recv(1000)] == [b"WATCHDOG=1", b"WATCHDOG=1"]
        (tasks.directory("worker0") / "heard").touch()
        assert tasks.wait() == {"worker0": FINISHED}
        assert "socket: None" in tasks.output("worker0")
