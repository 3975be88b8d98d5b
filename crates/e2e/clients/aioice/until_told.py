"""Connects two ICE agents as relay_only.py does, and exchanges messages until its input ends. Then each of
them makes every request that a client makes later, and they go on for a while.

Usage: until_told.py HOST PORT USERNAME PASSWORD TRANSPORT
"""

import asyncio
import sys

from aioice import stun, turn
from relay_only import connect, exchange


async def renew(agent):
    relay = next(one for one in agent._protocols if isinstance(one.transport, turn.TurnTransport))
    client = relay.transport._TurnTransport__inner_protocol
    peer = next(iter(client.peer_to_channel))
    for method, attributes in (
        (stun.Method.REFRESH, {"LIFETIME": 600}),
        (stun.Method.CREATE_PERMISSION, {"XOR-PEER-ADDRESS": peer}),
        (stun.Method.CHANNEL_BIND, {"CHANNEL-NUMBER": client.peer_to_channel[peer], "XOR-PEER-ADDRESS": peer}),
    ):
        request = stun.Message(message_method=method, message_class=stun.Class.REQUEST)
        request.attributes.update(attributes)
        response, _ = await client.request_with_retry(request)
        print("answered:", response.message_method.name, response.message_class.name)


async def main(host, port, username, password, transport):
    a, b = await connect(host, int(port), username, password, transport)
    told = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    count = 0
    while not told.done():
        await exchange(a, b, count)
        count += 1
        if count == 100:
            print("under way", flush=True)
        # The processor is others' as well.
        await asyncio.sleep(0.002)
    for agent in (a, b):
        await renew(agent)
    for n in range(count, count + 100):
        await exchange(a, b, n)
    await asyncio.gather(a.close(), b.close())
    print(f"exchanged all of {count + 100} both ways")


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
