"""Fixtures of the tests of the fence."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.host.fenced_networks import made_networks, put_up
from tests.trainer.host.networks import Networks
from trainer.host import fence_state


@pytest.fixture(scope="module")
def networks() -> Iterator[Networks]:
    with made_networks() as made:
        yield made


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return tmp_path / fence_state.RULES


@pytest.fixture
def fenced(networks: Networks, rules: Path) -> Networks:
    put_up(networks, rules)
    return networks
