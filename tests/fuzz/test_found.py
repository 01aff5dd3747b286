"""Inputs that `make fuzz` found no longer crash a reader, and the fuzzer would still find others."""

from pathlib import Path

import pytest

from psfleet.run.folder import saved_settings
from tests.fuzz import answers, readers, run_folders
from tests.fuzz.search import Reader, fault_of, search
from tests.psfleet.run.test_host_answers import OF_ALL


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> list[Reader]:
    return readers.readers(tmp_path_factory.mktemp("runs"))


def test_inputs_that_were_found_no_longer_crash_a_reader(every: list[Reader]) -> None:
    files = {file: fault_of(reader, file.read_bytes()) for reader in every for file in reader.found.glob("*")}
    assert not any(files.values()), files
    assert files.keys() == set(Path(__file__).parent.glob("found/*/*"))


def test_each_reader_survives_good_data_and_some_damage(every: list[Reader]) -> None:
    for reader in every:
        assert fault_of(reader, reader.sample) == "", reader.name
        assert search(reader, 1, 3) == {}, reader.name


def test_the_undamaged_answers_of_hosts_are_valid() -> None:
    for module, told in (("trainer_tasks", answers.answers_of_tasks()), ("host_doctor", answers.DOCTORS)):
        whole = {host: answers.whole(answer) for host, answer in told.items()}
        expected = {host: {"problem": "", **OF_ALL, **answer} for host, answer in told.items()}
        assert answers.taken(module, whole) == expected


def test_the_fuzzer_finds_a_reader_that_trusts_its_input(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"training": {}, "tasks": {}}')
    believing = run_folders.of_file("believing", tmp_path, "settings.json", saved_settings)
    assert "ValueError in folder.saved_settings" in search(believing, 1, 50)
