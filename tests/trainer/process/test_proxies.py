"""Which hosts are kept out of a proxy; test_start_and_end.py has real tasks that meet beside one."""

import pytest

from trainer.process.proxies import bypass_proxies

HOSTS = "10.0.0.1,127.0.0.1,::1,fd00::1,localhost,node3"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, HOSTS),
        ({"no_proxy": "example.org,.lan"}, f"example.org,.lan,{HOSTS}"),
        (
            {"no_proxy": "lan", "no_grpc_proxy": "grpc.lan"},
            f"grpc.lan,{HOSTS}",
        ),
    ],
)
def test_the_hosts_of_the_plan_are_added_to_those_that_grpc_reaches_directly(
    given: dict[str, str], expected: str
) -> None:
    environment = {"https_proxy": "http://proxy:3128", **given}
    bypass_proxies(environment, ["node3:2222", "10.0.0.1:2222", "10.0.0.1:2223", "[fd00::1]:2222"])
    assert environment == {"https_proxy": "http://proxy:3128", **given, "no_grpc_proxy": expected}
