"""The table of the costs of deployments."""

from benchmarks.deployment import ROWS, Figures, page, picture


def costs(hosts: int) -> dict[str, Figures]:
    each = {
        "seconds": 1.0 + hosts,
        "controller_cpu_seconds": 2.0 + 0.25 * hosts,
        "cpu_seconds": 3.0 * hosts,
        "megabytes": 5.0,
    }
    return dict.fromkeys(ROWS, each)


def test_a_row_has_the_costs_of_each_number_of_hosts_and_a_slope_over_their_range() -> None:
    text = page({"cores": 2}, {2: costs(2), 4: costs(4), 12: costs(12)})
    assert "| again, nothing to do | 3.0 (2.5, 6, 5) | 5.0 (3.0, 12, 5) | 13.0 (5.0, 36, 5) |" in text
    assert "for each host more: again, nothing to do 0.25, bare hosts, wheels cached 0.25, " in text
    assert "for each host more" not in page({}, {3: costs(3)})


def test_the_picture_has_a_line_for_each_row() -> None:
    drawn = picture({2: costs(2), 4: costs(4)})
    assert all(words in drawn for words in ROWS.values())
