"""What a deployment does with several programs on a host, as Ansible makes it of the roles."""

import json
from pathlib import Path

import yaml

from tests.repository import HERE, ROOT, played, written_play

ROLES = ROOT / "roles"
STEPS = {"programs": "{{ training_program_on_host }}", "last": "{{ trainer_on_host | last }}"}


def test_each_program_comes_to_the_host_stays_there_and_has_what_it_requires(tmp_path: Path) -> None:
    plays = yaml.safe_load((ROOT / "playbooks/deploy.yml").read_text(encoding="utf-8"))
    (required,) = [
        task["vars"]["package_store_program_requirements"]
        for play in plays
        for task in play.get("tasks", ())
        if "package_store_program_requirements" in task.get("vars", {})
    ]
    releases = {"a" * 12: "/a.txt", "b" * 12: "", "c" * 12: "/c.txt", "d" * 12: "/a.txt"}
    programs = [
        {"name": release[0], "source": f"/{release[0]}.py", "release": release, "requirements": file}
        for release, file in releases.items()
    ]
    values = {
        "cluster_programs": programs,
        "cluster_tasks": {"here": [{"job": "ps", "index": 0, "gpus": []}]},
        "cluster_paths": {"configuration_directory": "/etc/psfleet", "install_directory": "/opt/psfleet"},
        "cluster_release": "0" * 12,
        "__trainer_environments": [{"lock_hash": "1" * 12}],
    }
    content = "{{ (steps | combine({'required': required})) | to_json }}"
    playbook = written_play(
        tmp_path,
        {"ansible.builtin.copy": {"dest": str(tmp_path / "steps.json"), "content": content}},
        vars={"steps": STEPS, "required": required},
        vars_files=[
            f"{ROLES}/{file}/main.yml"
            for file in ("trainer/defaults", "trainer/vars", "training_program/vars")
        ],
    )
    done = played(playbook, "-i", "here,", *HERE, "-e", json.dumps(values))
    assert done.returncode == 0, done.stdout + done.stderr
    made = json.loads((tmp_path / "steps.json").read_text())
    assert [step["arguments"]["release"] for step in made["programs"]] == [*releases]
    assert made["last"]["step"] == "unneeded_content"
    assert made["last"]["arguments"]["wanted"] == ["0" * 12, *releases, "1" * 12]
    assert made["required"] == ["/a.txt", "/c.txt"]
