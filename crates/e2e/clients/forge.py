"""Puts a UDP datagram in IPv4 on a link, COUNT times, whatever address it is said to come from.

Usage: forge.py INTERFACE MAC FROM:PORT TO:PORT TEXT COUNT
"""

import socket
import struct
import sys


def address(text):
    host, port = text.rsplit(":", 1)
    return socket.inet_aton(host), int(port)


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def datagram(source, destination, payload):
    (source, source_port), (destination, destination_port) = source, destination
    length = 8 + len(payload)
    pseudo = source + destination + struct.pack("!BBH", 0, socket.IPPROTO_UDP, length)

    def udp(check):
        return struct.pack("!HHHH", source_port, destination_port, length, check) + payload

    def ip(check):
        words = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 1, 0, 64, socket.IPPROTO_UDP, check)
        return words + source + destination

    return ip(checksum(ip(0))) + udp(checksum(pseudo + udp(0)))


def main(interface, mac, source, destination, text, count):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    link.bind((interface, 0))
    ours = link.getsockname()[4]
    frame = bytes.fromhex(mac.replace(":", "")) + ours + b"\x08\x00"
    frame += datagram(address(source), address(destination), text.encode())
    for _ in range(int(count)):
        link.send(frame)


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    main(*sys.argv[1:])
