from trainer.host.wording import counted, dotted, first_of, grouped, readable


def test_lists_and_counts_are_formatted() -> None:
    assert grouped([("b", 1), ("a", 2), ("b", 3)]) == {"b": [1, 3], "a": [2]}
    assert [counted(count, "time") for count in (0, 1, 2)] == ["0 times", "1 time", "2 times"]
    assert (counted(2, "ps"), dotted((2, 36))) == ("2 ps", "2.36")
    names = [str(number) for number in range(12)]
    assert first_of(names) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
    assert first_of(names[:10]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert first_of(names[:3], 2, "; ") == "0; 1 and 1 more"
    assert [readable(size) for size in (999, 1000, 10**9)] == ["999 bytes", "1.0 kB", "1.0 GB"]
