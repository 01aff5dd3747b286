"""An eavesdropper: record the packets of a network device, and search them for bytes."""

import fcntl
import socket
import struct
import sys
from pathlib import Path

ALL = 0x0003  # ETH_P_ALL
MEMBERSHIP, PROMISCUOUS = 1, 1  # PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC of packet(7)
SECONDS, ENOUGH = 120.0, 32 * 2**20


def record(device: str, file: Path) -> None:
    """Write the frames that pass, until there are enough of them. Raises TimeoutError where none do."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    wire.bind((device, 0))
    number = struct.unpack("16xi20x", fcntl.ioctl(wire, 0x8933, struct.pack("40s", device.encode())))[0]
    wire.setsockopt(263, MEMBERSHIP, struct.pack("iHH8s", number, PROMISCUOUS, 0, b""))  # SOL_PACKET
    wire.setsockopt(socket.SOL_SOCKET, 33, 16 * 2**20)  # SO_RCVBUFFORCE
    wire.settimeout(SECONDS)  # between two frames
    size = 0
    with file.open("wb") as stream:
        while size < ENOUGH:
            size += stream.write(wire.recv(2**17))


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2], Path(sys.argv[3]))
    else:
        passed = Path(sys.argv[2]).read_bytes()
        print(sum(bytes.fromhex(part) in passed for part in sys.argv[3:]))
