/* The peer that echoes: every packet of a run goes back by the link it came from. All else passes. */
#include "reflect.h"

SEC("xdp")
int reflect(struct xdp_md *ctx)
{
	struct packet packet;
	if (!find_packet(ctx, &packet) || !packet.correct)
		return XDP_PASS;
	return turn_back(ctx, &packet);
}

/* See port.bpf.c. */
char _license[] SEC("license") = "Dual MIT/GPL";
