from pathlib import Path

import pytest

from plugins.module_utils.tasks.run_links import RunLinks


@pytest.fixture
def links(tmp_path: Path) -> RunLinks:
    (tmp_path / "log").mkdir()
    (tmp_path / "state/runs/r1").mkdir(parents=True)
    directories = {"configuration": "etc", "state": "state", "log": "log"}
    return RunLinks({f"{name}_directory": str(tmp_path / place) for name, place in directories.items()})


@pytest.mark.parametrize("before", ["", "r0"])
def test_links_are_created_or_changed_to_point_to_the_run(links: RunLinks, before: str) -> None:
    if before:
        links.point_to(before)
    assert not links.all_point_to("r1")
    links.point_to("r1")
    assert links.all_point_to("r1")
    assert (links.state / "current").resolve() == links.state / "runs/r1"
    assert (links.logs / "current").resolve() == links.logs / "r1"


def test_a_directory_in_place_of_a_link_is_refused(links: RunLinks) -> None:
    (links.state / "current").mkdir()
    with pytest.raises(ValueError, match=r"current is not a symbolic link; move it away$"):
        links.point_to("r1")


def test_links_are_set_only_to_a_single_existing_run_that_is_no_link(links: RunLinks) -> None:
    assert links.only_run({"r1"}) == "r1"
    assert {links.only_run(runs) for runs in (set[str](), {""}, {"r1", "r2"}, {"r2"})} == {""}
    assert links.only_run({"../runs/r1"}) == ""
    (links.state / "runs/r3").symlink_to("/etc")
    assert links.only_run({"r3"}) == ""
