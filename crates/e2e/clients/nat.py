"""A NAT for one host behind it: nat.py TUN OUTSIDE MAPPING FILTERING

Takes the UDP packets (IPv4) that are routed to the interface TUN, and sends what is in them from OUTSIDE.
MAPPING and FILTERING are what RFC 4787 has as "endpoint", "address" or "port": whether a mapping is the
same for every destination (endpoint-independent), for every port of an address, or for one destination,
and whom it lets in.
"""

import fcntl
import os
import select
import socket
import struct
import sys

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000


def key(kind, remote):
    """What of a remote address a behaviour looks at."""
    return {"endpoint": (), "address": remote[:1], "port": remote}[kind]


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(source, destination, payload):
    """An IPv4 packet with a UDP datagram; its UDP checksum is left out."""
    udp = struct.pack("!HHHH", source[1], destination[1], 8 + len(payload), 0) + payload
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(destination[0])
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + addresses
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + udp


def main(tun, outside, mapping, filtering):
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", tun.encode(), IFF_TUN | IFF_NO_PI))
    mappings = {}  # (inside, what the mapping looks at) -> socket
    insides = {}  # socket -> (inside, whom it sent to)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([device, *insides], [], [])
        for one in ready:
            if one == device:
                data = os.read(device, 65536)
                head = (data[0] & 15) * 4
                fragment = struct.unpack("!H", data[6:8])[0] & 0x3FFF
                if data[0] >> 4 != 4 or data[9] != 17 or fragment:
                    continue
                ports = struct.unpack("!HH", data[head : head + 4])
                inside = (socket.inet_ntoa(data[12:16]), ports[0])
                remote = (socket.inet_ntoa(data[16:20]), ports[1])
                place = (inside, key(mapping, remote))
                if place not in mappings:
                    mappings[place] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                    mappings[place].bind((outside, 0))
                    insides[mappings[place]] = (inside, set())
                insides[mappings[place]][1].add(key(filtering, remote))
                mappings[place].sendto(data[head + 8 :], remote)
            else:
                payload, remote = one.recvfrom(65536)
                inside, allowed = insides[one]
                if key(filtering, remote) in allowed:
                    os.write(device, packet(remote, inside, payload))


main(*sys.argv[1:])
