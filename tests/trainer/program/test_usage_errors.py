"""A program that refuses its command line is not restarted, and people read its own words and a hint.

The files of usage/ are the output of real parsers, given psfleet's four flags.
"""

from pathlib import Path

import pytest

from tests.trainer.program.launched import Tasks, program, run_alone
from trainer.contract.exit_codes import FINISHED, NO_RESTART, PROGRAM, USAGE
from trainer.program.usage_errors import usage_error_in

PRINTED = Path(__file__).with_name("usage")
BANNER = "usage: train.py ps|worker index"


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("argparse", "train.py: error: argument --ps_hosts_num: invalid int value: '10.89.0.11:2222'"),
        ("argparse_required", "train.py: error: the following arguments are required: job, index"),
        ("optparse", "train.py: error: no such option: --job_name"),
        ("click", "Error: No such option '--job_name'. Did you mean '--job-name'?"),
        ("typer", "No such option: --job_name (Possible options: --job)"),
        ("fire", "ERROR: Could not consume arg: --job_name=ps"),
        ("docopt", "Usage:\ntrain.py ps <index>\ntrain.py worker <index> [--rate=<r>]"),
        ("absl", "FATAL Flags parsing error: Unknown command line flag 'job_name'"),
        (
            "absl_required",
            "FATAL Flags parsing error: flag --data=None: Flag --data must have a value other than None.",
        ),
        ("absl_usage", "USAGE: train.py [flags]\nflags:\nToo few command-line arguments."),
        ("getopt", "option --job_name not recognized\ntrain.py -j <job>"),
        ("positional", "Usage: python train.py ps|worker index"),
    ],
)
def test_the_words_of_each_parser_are_found(file: str, words: str) -> None:
    printed = (PRINTED / f"{file}.txt").read_text()
    assert usage_error_in(printed) == words
    assert usage_error_in(f"W0000 00:00:1795262048.465540 27082 port.cc:153] loaded\n{printed}") == words
    # TensorFlow's log says that a server was started: the command line was accepted.
    assert (
        usage_error_in(f"I0000 00:00:1795262048 1 rpc.cc:1] Started server with target: g\n{printed}") == ""
    )


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "step 100 loss 0.2\nmemory usage: 3.1 GB\nnot converged\n",
        "cc1plus: error: cannot read\n",
        "Error: the data server does not answer\n",
        "Traceback (most recent call last):\nValueError: usage\n",
    ],
)
def test_other_output_is_no_usage_error(printed: str) -> None:
    assert usage_error_in(printed) == ""


ARGPARSE = """
    import argparse
    parser = argparse.ArgumentParser("train.py")
    parser.add_argument("--ps_hosts_num", type=int)
    parser.add_argument("--job_name")
    parser.add_argument("--task_index", type=int)
    parser.parse_args()
"""
ABSL = """
    from absl import app, flags
    flags.DEFINE_string("job", "", "ps or worker")
    app.run(lambda _: None)
"""
POSITIONAL = """
    import sys
    if sys.argv[1] not in ("ps", "worker"):
        print("usage: train.py ps|worker index")
        sys.exit({code})
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ARGPARSE, "train.py: error: argument --ps_hosts_num: invalid int value: '"),
        (ABSL, "FATAL Flags parsing error: Unknown command line flag 'job_name'"),
        (POSITIONAL.format(code=1), BANNER),
        (POSITIONAL.format(code=-1), BANNER),
        (POSITIONAL.format(code=0).replace("train.py", "main.py"), BANNER.replace("train", "main")),
        (POSITIONAL.format(code=f"'{BANNER}'"), BANNER),
    ],
)
def test_a_usage_error_ends_the_task_for_good_with_its_words_and_a_hint(
    tmp_path: Path, text: str, words: str
) -> None:
    with Tasks(tmp_path, program(tmp_path, text), ps=1, worker=1) as tasks:
        tasks.start("worker0")
        assert tasks.wait() == {"worker0": USAGE}
        reason = str(tasks.progress("worker0")["reason"])
    assert reason.startswith(words)
    assert "psfleet passes --job_name, --task_index, --ps_hosts and --worker_hosts" in reason
    assert "trainer_program_flags: false" in reason
    assert '"--job={job_name}"' in reason
    assert f"the program failed: {reason} (exit code 64)" in tasks.output("worker0")


def test_without_the_flags_the_hint_says_how_to_get_them(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, POSITIONAL.format(code=2)), worker=1) as tasks:
        tasks.flags, tasks.arguments = False, ["--help-me"]
        tasks.start()
        assert tasks.wait() == {"worker0": USAGE}
        reason = str(tasks.progress("worker0")["reason"])
    assert "trainer_program_flags: true adds --job_name" in reason


def test_an_exception_that_names_a_flag_has_the_hint_too(tmp_path: Path) -> None:
    tasks = run_alone(tmp_path, "import sys; int(sys.argv[2])", PROGRAM)
    reason = str(tasks.progress("worker0")["reason"])
    assert reason.startswith(
        "ValueError: invalid literal for int() with base 10: '--task_index=0'\n(psfleet passes"
    )


def test_a_program_that_ends_well_and_names_its_usage_in_passing_made_no_usage_error(tmp_path: Path) -> None:
    run_alone(tmp_path / "a", "print('usage: 3.1 GB')", FINISHED)
    run_alone(tmp_path / "b", "print('1\\n2\\n3\\nusage: python main.py --test')", FINISHED)


def test_an_exit_code_alone_is_no_usage_error_and_the_last_line_is_told(tmp_path: Path) -> None:
    tasks = run_alone(tmp_path, "print('usage is 3 GB'); print('not converged'); raise SystemExit(2)", 2)
    reason = tasks.progress("worker0")["reason"]
    assert reason == "the program ended with exit code 2; its last line: not converged"
    assert 2 not in NO_RESTART


def test_a_program_that_has_served_made_no_usage_error(tmp_path: Path) -> None:
    """The program listens until its launcher has given two signs of life: it has seen the port by then."""
    text = f"""
        import json, os, pathlib, socket, sys, time
        address = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][0]
        server = socket.create_server(("127.0.0.1", int(address.rpartition(":")[2])))
        def wall():
            return json.loads(pathlib.Path("progress.json").read_text())["wall"]
        for _ in range(2):
            before = wall()
            while wall() == before:
                time.sleep(0.1)
        print({BANNER!r})
        sys.exit(2)
    """
    tasks = run_alone(tmp_path, text, 2)
    assert (
        tasks.progress("worker0")["reason"] == f"the program ended with exit code 2; its last line: {BANNER}"
    )
