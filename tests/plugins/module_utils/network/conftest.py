"""Fixtures of the tests of the fence."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins.module_utils.network import fence_state
from tests.networks import Networks
from tests.plugins.module_utils.network.fenced_networks import made_networks, put_up


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
