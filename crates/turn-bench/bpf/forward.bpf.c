/* A server that only forwards: packets of a run that come by one link leave by the other, with that
 * link's MAC addresses. No relay can do less, so it shows what source and sink can carry. */
#include "frame.h"

/* Where packets of a link go. */
struct hop {
	__u32 interface;
	__u8 destination[ETH_ALEN];
	__u8 source[ETH_ALEN];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2);
	__type(key, __u32); /* the interface a packet came by */
	__type(value, struct hop);
} hops SEC(".maps");

SEC("xdp")
int forward(struct xdp_md *ctx)
{
	/* Step 1: packets of a run alone. */
	struct packet packet;
	if (!find_packet(ctx, &packet))
		return XDP_PASS;

	/* Step 2: where to. */
	__u32 interface = ctx->ingress_ifindex;
	struct hop *hop = bpf_map_lookup_elem(&hops, &interface);
	if (!hop)
		return XDP_PASS;

	/* Step 3: the other link's addresses. */
	__builtin_memcpy(packet.eth->h_dest, hop->destination, ETH_ALEN);
	__builtin_memcpy(packet.eth->h_source, hop->source, ETH_ALEN);

	/* Step 4: out. */
	return bpf_redirect(hop->interface, 0);
}

/* See port.bpf.c. */
char _license[] SEC("license") = "Dual MIT/GPL";
