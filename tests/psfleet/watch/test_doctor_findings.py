from typing import Any

import pytest
from ansible import constants

from plugins.module_utils.environments.environment import TENSORFLOW_VERSION
from psfleet.watch.console import PlaybookConsole
from psfleet.watch.doctor_findings import Findings
from psfleet.watch.doctor_table import doctor_table

HOST = ("system", "processor", "libc", "python", "memory", "disk", "clock", "names", "ports")
GPU = ("bus", "driver", "nvidia-smi", "uvm", "gpus")
INSIDE = ("environment", "tensorflow", "libraries", "devices", "product")


def check(
    name: str, state: str = "ok", found: str = "well", remedy: str = "", task: str = ""
) -> dict[str, str]:
    return {"task": task, "name": name, "state": state, "found": found, "remedy": remedy}


def answer(
    *wrong: dict[str, str], names: tuple[str, ...] = (*HOST, *INSIDE), **changes: object
) -> dict[str, Any]:
    """Return the answer of a healthy host, except for the checks in `wrong`."""
    other = {entry["name"] for entry in wrong}
    checks = [*wrong, *(check(name) for name in names if name not in other)]
    return {"problem": "", "checks": checks, "deployed": TENSORFLOW_VERSION, "alive": [], **changes}


def bare() -> dict[str, Any]:
    skipped = [check(name, "skipped", "not deployed") for name in INSIDE]
    return answer(*skipped, deployed="")


def plan(*hosts: str) -> dict[str, Any]:
    return {"hash": "aaaaaaaaaaaa", "tasks": [{"host": host, "address": host} for host in hosts]}


def lines(
    answers: dict[str, dict[str, Any]], columns: int = 0, *, inventory: str = "", verbose: bool = False
) -> list[str]:
    console = PlaybookConsole(columns, inventory=[inventory or constants.DEFAULT_HOST_LIST[0]])
    return console.lines(*doctor_table(Findings.of(plan(*answers), answers), console, verbose=verbose))


def test_a_healthy_cluster_has_only_ok_checks() -> None:
    findings = Findings.of(plan("node1", "node2"), {"node1": answer(), "node2": answer()})
    assert not findings.failure
    assert findings.troubles == ()
    assert findings.summary == "2 hosts, 28 checks: all well"
    shown = lines({"node1": answer(), "node2": answer()})
    assert shown[1].split() == ["node1", *["ok"] * 14]
    assert shown[-1] == findings.summary


@pytest.mark.parametrize(
    ("answers", "colour"),
    [
        (answer(), 32),
        (answer(check("clock", "warning", "3 s ahead", "NTP")), 33),
        (answer(check("clock", "failed", "an hour ahead", "NTP")), 31),
        ({}, 31),
    ],
)
def test_a_row_has_the_colour_of_its_worst_check(
    answers: dict[str, Any], colour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bool(Findings.of(plan("node1"), {"node1": answers}).failure) == (colour == 31)
    monkeypatch.setattr("psfleet.watch.console.ANSIBLE_COLOR", True)
    shown = lines({"node1": answers})
    assert shown[1].startswith(f"\x1b[{colour}mnode1")
    assert (shown[-1].startswith(f"\x1b[{colour}m1 host")) == (colour != 31)


def test_empty_columns_are_omitted_and_the_others_keep_their_order() -> None:
    findings = Findings.of(plan("node1", "node2"), {"node1": bare(), "node2": answer(names=(*GPU, *HOST))})
    assert findings.names == (*HOST, *GPU)
    assert not findings.failure
    told = " ".join(lines({"node1": bare()}, 40, inventory="inventory/other"))
    assert "Not deployed: node1. TensorFlow was not tried there" in told
    assert "`ansible-playbook -i inventory/other deploy.yml` makes them ready" in told


def test_each_problem_is_shown_once_with_its_hosts_and_its_remedy() -> None:
    held = check("ports", "failed", "port 2222 of ps0 is held by nc (pid 7)", "stop it")
    driver = check("driver", "failed", "no driver", "install one")
    answers = {
        "node1": answer(held),
        "node2": answer(driver, names=(*HOST, *GPU)),
        "node3": answer(driver, check("clock", "warning", "3 s ahead", "NTP"), names=(*HOST, *GPU)),
    }
    text = "\n".join(lines(answers))
    assert "FAILED  ports\n  node1: port 2222 of ps0 is held by nc (pid 7)\n  -> stop it\n" in text
    assert "FAILED  driver\n  node2, node3: no driver\n  -> install one\n" in text
    assert text.index("FAILED  driver") < text.index("warn  clock\n  node3: 3 s ahead")
    failure = Findings.of(plan(*answers), answers).failure
    assert failure == "3 hosts, 42 checks: 3 failed on 3 hosts, 1 with a warning on 1 host"
    assert failure not in text


def test_a_check_of_a_task_names_it_and_its_host_shows_the_worst_result() -> None:
    one = check("product", "ok", task="worker0")
    other = check("product", "failed", "out of memory", "look at nvidia-smi", task="worker1")
    findings = Findings.of(plan("node1"), {"node1": answer(one, other)})
    assert findings.rows[0].state("product") == "failed"
    assert findings.troubles[0].found == {"out of memory": ["node1 (worker1)"]}
    assert findings.summary == "1 host, 14 checks: 1 failed on 1 host"


@pytest.mark.parametrize(
    "silent", [{}, {"problem": "could not log in: refused", "checks": [], "deployed": "", "alive": []}]
)
def test_a_host_without_an_answer_has_a_row_and_is_a_failure(silent: dict[str, Any]) -> None:
    findings = Findings.of(plan("node1", "node2"), {"node1": answer(), "node2": silent})
    assert findings.failure
    assert findings.summary == "2 hosts, 14 checks: 1 host not reached"
    text = "\n".join(lines({"node1": answer(), "node2": silent}))
    assert "node2  not reached\n" in text
    assert (
        f"FAILED  connection\n  node2: {silent.get('problem', 'gave no answer')}\n  -> correct ansible_host"
        in text
    )


def test_a_cluster_without_answers_is_shown_as_not_reached() -> None:
    assert "node1  not reached" in lines({"node1": {}}, 80)


def test_different_versions_of_tensorflow_on_hosts_are_a_failure() -> None:
    answers = {"node1": answer(), "node2": answer(deployed="2.20.0"), "node3": bare()}
    findings = Findings.of(plan(*answers), answers)
    assert [row.state("environment") for row in findings.rows] == ["ok", "failed", "skipped"]
    (words,) = findings.troubles[0].found
    assert f"TensorFlow {TENSORFLOW_VERSION} on node1; TensorFlow 2.20.0 on node2" in words
    assert "deploy.yml" in findings.troubles[0].remedy


def test_notes_name_running_tasks_and_hosts_left_out_by_limit() -> None:
    answers = {"node1": answer(alive=["ps0", "worker0"])}
    findings = Findings.of(plan("node1", "node2"), answers)
    assert findings.notes == (
        "A run is going on, and its tasks have priority over the doctor: ps0, worker0 on node1.",
        "Left out by --limit: node2.",
    )


def test_verbose_output_shows_the_finding_of_every_check() -> None:
    shown = lines({"node1": answer(check("memory", found="8.0 GiB"))}, verbose=True)
    assert "  ok      memory: 8.0 GiB" in shown


@pytest.mark.parametrize("columns", [20, 40, 80, 100, 140])
def test_lines_fit_the_terminal(columns: int) -> None:
    long = check("driver", "failed", "a " * 200, "do " * 100)
    answers = {
        f"a-host-of-some-name-{number}": answer(long, names=(*HOST, *GPU, *INSIDE)) for number in range(3)
    }
    shown = lines(answers, columns)
    if columns >= 80:
        assert max(len(line) for line in shown) <= columns
    headings = [line for line in shown if line.startswith("HOST")]
    assert all(line.split()[0] == "HOST" and line.split()[1:] for line in headings)
    assert {name.upper() for name in (*HOST, *GPU, *INSIDE)} == set(" ".join(headings).split()) - {"HOST"}


def test_a_wide_table_is_split_at_a_group_of_columns() -> None:
    headings = [line.split() for line in lines({"node1": answer()}, 110) if line.startswith("HOST")]
    assert [heading[1] for heading in headings] == ["SYSTEM", "ENVIRONMENT"]
    headings = [line.split() for line in lines({"node1": answer()}, 140) if line.startswith("HOST")]
    assert [heading[1] for heading in headings] == ["SYSTEM"]
    gpus = {"node1": answer(names=(*HOST, *GPU, *INSIDE))}
    headings = [line.split() for line in lines(gpus, 140) if line.startswith("HOST")]
    assert [heading[1] for heading in headings] == ["SYSTEM", "ENVIRONMENT"]


def test_a_table_of_300_hosts_groups_equal_hosts() -> None:
    answers = {f"node{number}": answer() for number in range(1, 301)}
    for number in (4, 5, 100):
        answers[f"node{number}"] = answer(check("disk", "failed", f"{number} MB free", "free some"))
    answers["node200"] = {}
    shown = lines(answers, 140)
    assert len(shown) < 30
    assert [line.split("  ")[0] for line in shown[1:8]] == [
        "node1 .. node3 (3 hosts)",
        "node4 .. node5 (2 hosts)",
        "node6 .. node99 (94 hosts)",
        "node100",
        "node101 .. node199 (99 hosts)",
        "node200",
        "node201 .. node300 (100 hosts)",
    ]
    assert "  node100: 100 MB free" in shown


def test_only_the_first_of_many_different_findings_are_shown() -> None:
    answers = {
        f"node{number}": answer(check("disk", "failed", f"{number} MB free", "free some"))
        for number in range(50)
    }
    shown = lines(answers, 140)
    assert sum("MB free" in line for line in shown) == 10
    assert any("and 40 more: node10, node11" in line and "and 30 more" in line for line in shown)


def test_texts_of_a_host_are_made_printable_and_shortened() -> None:
    evil = check("disk\x1b[2J", "failed", "a\nb\x1b]0;x\x07" + "y" * 5000, "\x9b31m")
    shown = lines({"node1": answer(evil, {**check("names"), "state": "\x1b[31m"})})
    assert all(line.isprintable() for line in shown)
    assert max(len(line) for line in shown) < 1100
