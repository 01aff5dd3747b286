"""Listen as services of a host do: at each path given, for everybody, and at the port of a resolver."""

import os
import socket
import socketserver
import sys
import threading
from pathlib import Path


class Answer(socketserver.BaseRequestHandler):
    """Sends the question of a resolver's client back; each other client gets no answer."""

    def handle(self) -> None:
        """Answer one client."""
        if isinstance(self.request, tuple):
            question, answering = self.request
            answering.sendto(question, self.client_address)


# The port is free again at once when the service stops.
socketserver.TCPServer.allow_reuse_address = True
servers = [
    socketserver.UDPServer(("127.0.0.53", 53), Answer),
    socketserver.TCPServer(("127.0.0.53", 53), Answer),
]
for path in map(Path, sys.argv[1:]):
    path.parent.mkdir(parents=True, exist_ok=True)
    servers.append(socketserver.UnixStreamServer(str(path), Answer))
    path.chmod(0o666)
for server in servers:
    threading.Thread(target=server.serve_forever).start()
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
    systemd.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
