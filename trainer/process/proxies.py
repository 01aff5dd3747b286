"""Keeps the connections among the tasks out of a proxy that the host's or the program's environment names."""

from collections.abc import Iterable, MutableMapping

# The addresses at which a client reaches its own server.
_THIS_HOST = ("localhost", "127.0.0.1", "::1")


def bypass_proxies(environment: MutableMapping[str, str], addresses: Iterable[str]) -> None:
    """Add the hosts of `addresses` ("host:port"), and this host, to `no_grpc_proxy` in `environment`.

    gRPC then connects to them directly; call this before TensorFlow is loaded. Otherwise gRPC opens every
    channel through the proxy in `grpc_proxy`, `https_proxy` or `http_proxy`, unless the host is in
    `no_grpc_proxy` or, if that is not set, in `no_proxy` (grpc/doc/environment_variables.md). Such a proxy
    knows nothing of the cluster, so a session would wait for ever.
    """
    bypassed = environment.get("no_grpc_proxy", environment.get("no_proxy", ""))
    hosts = {*_THIS_HOST, *(address.rpartition(":")[0].strip("[]") for address in addresses)}
    environment["no_grpc_proxy"] = ",".join(filter(None, [bypassed, *sorted(hosts)]))
