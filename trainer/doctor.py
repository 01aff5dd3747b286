"""`python -m trainer.doctor` prints as JSON what TensorFlow can compute on in a task's environment.

{"checks": [{"name": "tensorflow", "state": "ok", "found": "...", "remedy": ""}, ...]}

The checks (trainer/host/check.py) are `tensorflow`, `libraries`, `devices` and `product`, in this order. The
command always ends, with exit code 0: TensorFlow runs in another process (doctor_tensorflow.py), because a
hanging driver cannot be interrupted, and a crashing library ends its process.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainer.host.check import Check
from trainer.process import gpu_libraries, gpus

NO_GPU = "no GPU was given to this task"
NAMES = ("tensorflow", "libraries", "devices", "product")
SECONDS = 120.0
# TensorFlow's log goes to standard error; the unit of doctor.yml writes the log and the answer to one file.
_LOG = (
    "its log says more, above or in /var/log/psfleet/doctor-<job>-<index>.out; for GPUs, see also "
    "`nvidia-smi`"
)
_FOUND_LENGTH = 400
# Lines of TensorFlow and CUDA that say why there is no GPU, and the prefix that such lines have.
_TELLING = re.compile(r"(?i)cuInit|Cannot dlopen|Ignoring visible|kernel driver|compute capability")
_PREFIX = re.compile(r"^[IWEF]\d{4} .*?\] ")
_REMEDIES_OF_DEATH = {
    "SIGILL": "this processor lacks what TensorFlow is built for; expected one with AVX",
    "SIGKILL": "the kernel kills what takes more memory than there is: `journalctl -k` names it",
}


@dataclass(frozen=True)
class EndedProcess:
    """The process with TensorFlow after its end, or after its time was over.

    `output` is its standard output, `log` its standard error. `problem` says how it ended, such as "ended
    with exit code 1"; "" for exit code 0.
    """

    output: str
    log: str
    problem: str = ""


def task_checks(environment: Mapping[str, str], seconds: float = SECONDS) -> list[Check]:
    """Return the four checks of a task with these environment variables, in the order of NAMES.

    TensorFlow gets `seconds`; before that, if the task has GPUs, the libraries get the time in
    trainer/process/gpu_libraries.py.
    """
    if not gpus.visible_devices(environment):
        libraries = Check("libraries", "skipped", NO_GPU)
        return in_order([*printed_checks(_run(environment, seconds)), libraries])
    results = gpu_libraries.open_libraries()
    libraries = libraries_check(results, gpu_libraries.compiler_problem(environment))
    # If libraries fail, TensorFlow would only repeat the problem less clearly. So TensorFlow is only
    # imported.
    alone = ("--import",) if libraries.state == "failed" else ()
    return in_order([*printed_checks(_run(environment, seconds, alone)), libraries])


def libraries_check(results: Sequence[gpu_libraries.OpenResult], compiler: str) -> Check:
    """Return the check `libraries`: "failed" for an error of the driver, a needed library or the compiler.

    It is "warning" if only other libraries do not open, else "ok". `results` are those of `open_libraries`;
    `compiler` is what XLA lacks to compile, "" for nothing.
    """
    driver, needed, others = gpu_libraries.failures(results)
    if driver:
        remedy = "NVIDIA's driver is a package of the system: roles/nvidia_cuda/README.md"
        return Check("libraries", "failed", f"of the driver: {driver}", remedy)
    if needed or compiler:
        remedy = "run deploy.yml; with nvidia_cuda_source: system, see nvidia_cuda_library_directories"
        return Check("libraries", "failed", "; ".join(filter(None, (needed, compiler))), remedy)
    if others:
        remedy = "none of our models needs it; a program may: run deploy.yml"
        return Check("libraries", "warning", others, remedy)
    return Check("libraries", "ok", f"all {len(results)} open")


def printed_checks(ended: EndedProcess) -> list[Check]:
    """Return the checks that the process printed, in its order.

    If the process did not end well, a failed check follows: the first of NAMES, except `libraries`, that it
    did not print. A failed check `devices` also says what TensorFlow's log says about GPUs.
    """
    checks = [Check.from_json(json.loads(line)) for line in ended.output.splitlines() if line.startswith("{")]
    printed = {check.name for check in checks}
    lines = [_PREFIX.sub("", line).strip() for line in ended.log.splitlines() if line.strip()]
    if ended.problem:
        name = next((name for name in NAMES if name not in printed | {"libraries"}), NAMES[-1])
        words = f"TensorFlow {ended.problem}: {lines[-1] if lines else 'it printed nothing'}"
        remedies = (text for death, text in _REMEDIES_OF_DEATH.items() if death in ended.problem)
        checks.append(Check(name, "failed", words[:_FOUND_LENGTH], next(remedies, _LOG)))
    reason = "; ".join(dict.fromkeys(line for line in lines if _TELLING.search(line)))
    for place, check in enumerate(checks):
        if reason and check.name == "devices" and check.state == "failed":
            checks[place] = replace(check, found=f"{check.found}: {reason}"[:_FOUND_LENGTH])
    return checks


def in_order(checks: Sequence[Check]) -> list[Check]:
    """Return the four checks in the order of NAMES; after the first failed check, all are "skipped".

    A check that `checks` lack is "skipped", too.
    """
    by_name = {check.name: check for check in checks}
    chain: list[Check] = []
    failed = ""
    for name in NAMES:
        check = by_name.get(name)
        if failed or check is None:
            check = Check(name, "skipped", f"{failed or 'an earlier check'} failed")
        elif check.state == "failed":
            failed = name
        chain.append(check)
    return chain


def _run(environment: Mapping[str, str], seconds: float, options: Sequence[str] = ()) -> EndedProcess:
    variables = {**environment, "TF_CPP_MIN_LOG_LEVEL": "0"}
    # A run's task may use the same GPU now, so this process takes little of the GPU's memory.
    variables["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    gpus.prepare(variables)
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    command = [sys.executable, "-m", "trainer.doctor_tensorflow", *options]
    process = subprocess.Popen(command, stdin=nothing, stdout=pipe, stderr=pipe, env=variables)
    try:
        output, log = process.communicate(timeout=seconds)
        code = process.returncode
        problem = f"ended with exit code {code}" if code else ""
        problem = f"was ended by {signal.Signals(-code).name}" if code < 0 else problem
    except subprocess.TimeoutExpired as error:
        # Do not wait for the end of the process: a process that hangs in the kernel cannot be killed.
        process.kill()
        output, log = error.stdout or b"", error.stderr or b""
        problem = f"did not answer within {seconds:g} s"
    ended = EndedProcess(output.decode(errors="replace"), log.decode(errors="replace"), problem)
    sys.stderr.write(ended.log)
    sys.stderr.flush()  # so that the answer is the last line, even if both go to one file
    return ended


def main() -> int:
    """Print the checks of this process's environment in one line of JSON; return 0, even if checks failed."""
    checks = [check.to_json() for check in task_checks(os.environ)]
    sys.stdout.write(json.dumps({"checks": checks}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
