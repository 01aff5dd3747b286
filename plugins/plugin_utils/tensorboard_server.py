"""Serves TensorBoard to one user of this machine: it answers only to the address that it prints.

It runs as a program of its own, in a Python that has TensorBoard and need not have Ansible or psfleet.
"""

import argparse
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

HOSTS = ("127.0.0.1", "localhost")
REFUSAL = (
    b"Open the whole address that tensorboard.yml printed: it has a secret, so that nobody else gets in.\n"
)

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def guarded(application: Application, prefix: str) -> Application:
    """Return an application that passes a request on only if its path is below the secret `prefix`.

    The request must also name this machine in its Host header (127.0.0.1 or localhost): another site's name
    may resolve to 127.0.0.1. All other requests get 403.
    """

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        named = str(environ.get("HTTP_HOST", "")).rpartition(":")
        host = named[0] if named[2].isdecimal() else named[2]
        prefix_in_path = str(environ.get("PATH_INFO", ""))[: len(prefix) + 1]
        if host in HOSTS and secrets.compare_digest(prefix_in_path.encode(), f"{prefix}/".encode()):
            return application(environ, start_response)
        start_response(
            "403 Forbidden", [("Content-Type", "text/plain"), ("Content-Length", str(len(REFUSAL)))]
        )
        return [REFUSAL]

    return answer


def main() -> None:
    """Serve the event files in the folder of --logdir at --port of this machine, until the process is ended.

    If the server cannot start, exit with the reason.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--logdir", required=True)
    options = parser.parse_args()
    from tensorboard import program, version

    # The secret is no argument of the process, because every user of this machine can read arguments.
    prefix = f"/{secrets.token_urlsafe(24)}"

    class Server(program.WerkzeugServer):
        def __init__(self, application: Application, flags: Any) -> None:  # noqa: ANN401
            super().__init__(guarded(application, prefix), flags)

    board = program.TensorBoard(server_class=Server)
    places = [f"--logdir={options.logdir}", "--host=127.0.0.1", f"--port={options.port}"]
    board.configure(argv=["tensorboard", *places, f"--path_prefix={prefix}", "--load_fast=false"])
    # main() would write the prefix to a file in /tmp.
    try:
        sys.stderr.write(f"TensorBoard {version.VERSION} at {board.launch()} (Ctrl-C to quit)\n")
    except program.TensorBoardServerException as error:
        sys.exit(error.msg)
    threading.Event().wait()


if __name__ == "__main__":
    os.umask(0o077)
    main()
