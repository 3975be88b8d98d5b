"""Connects two ICE agents that may use relayed candidates only, and compares what each receives.

Both agents allocate on the same server, so every packet travels through two allocations.
Usage: relay_only.py HOST PORT USERNAME PASSWORD COUNT
"""

import asyncio
import ssl
import sys

import aioice


async def connect(host, port, username, password, transport="udp"):
    """Over UDP, TCP or TLS, with any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def agent(controlling):
        return aioice.Connection(
            ice_controlling=controlling,
            turn_server=(host, port),
            turn_username=username,
            turn_password=password,
            turn_transport="udp" if transport == "udp" else "tcp",
            turn_ssl=context if transport == "tls" else None,
            transport_policy=aioice.TransportPolicy.RELAY,
        )

    a, b = agent(True), agent(False)
    for one in (a, b):
        await one.gather_candidates()
        kinds = {candidate.type for candidate in one.local_candidates}
        if kinds != {"relay"}:
            sys.exit(f"expected relayed candidates only, got {kinds or 'none'}")
        print("relayed address", one.local_candidates[0].host, one.local_candidates[0].port)
    for one, other in ((a, b), (b, a)):
        for candidate in other.local_candidates:
            await one.add_remote_candidate(candidate)
        await one.add_remote_candidate(None)
        one.remote_username, one.remote_password = other.local_username, other.local_password
    await asyncio.gather(a.connect(), b.connect())
    return a, b


async def exchange(a, b, n):
    """Message number n, in both directions."""
    for one, other in ((a, b), (b, a)):
        sent = bytes([n % 256]) * (1 + n % 1100)
        await one.send(sent)
        received = await asyncio.wait_for(other.recv(), 5)
        if received != sent:
            sys.exit(f"message {n} came altered: {len(received)} bytes of {len(sent)}")


async def main(host, port, username, password, count):
    a, b = await connect(host, int(port), username, password)
    for n in range(count):
        await exchange(a, b, n)
    await asyncio.gather(a.close(), b.close())
    print(f"exchanged {count} of {count} both ways")


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:5], int(sys.argv[5])))
