/* Sends a packet of a run back where it came from. */
#ifndef REFLECT_H
#define REFLECT_H

#include "frame.h"

static __always_inline __u64 sum_of(const void *words, int bytes)
{
	const __be16 *word = words;
	__u64 sum = 0;
#pragma unroll
	for (int i = 0; i < bytes / 2; i++)
		sum += bpf_ntohs(word[i]);
	return sum;
}

static __always_inline int turn_back(struct xdp_md *ctx, struct packet *packet)
{
	/* Step 1: the link's addresses change places. */
	__u8 mac[ETH_ALEN];
	__builtin_memcpy(mac, packet->eth->h_dest, ETH_ALEN);
	__builtin_memcpy(packet->eth->h_dest, packet->eth->h_source, ETH_ALEN);
	__builtin_memcpy(packet->eth->h_source, mac, ETH_ALEN);

	/* Step 2: so do IP's; its header's sum stays what it was. */
	__u64 sum;
	if (packet->ipv6) {
		struct ipv6hdr *ip = packet->ip;
		struct in6_addr address = ip->saddr;
		ip->saddr = ip->daddr;
		ip->daddr = address;
		sum = sum_of(&ip->saddr, 32);
	} else {
		struct iphdr *ip = packet->ip;
		__be32 address = ip->saddr;
		ip->saddr = ip->daddr;
		ip->daddr = address;
		sum = sum_of(&ip->saddr, 8);
	}

	/* Step 3: so do the ports. */
	struct udphdr *udp = packet->udp;
	__be16 port = udp->source;
	udp->source = udp->dest;
	udp->dest = port;

	/* Step 4: the checksum, in full: a packet that a socket of this host sent over a veth link has
	 * no more than the sum of the pseudo-header. The filler is zeros and needs no summing. */
	sum += IPPROTO_UDP + bpf_ntohs(udp->len) * 2;
	sum += bpf_ntohs(udp->source) + bpf_ntohs(udp->dest);
	if (packet->channel)
		sum += sum_of((struct channel_data *)packet->header - 1, sizeof(struct channel_data));
	sum += sum_of(packet->header, sizeof(*packet->header));
	udp->check = udp_checksum(sum);

	/* Step 5: out. XDP_TX would do the same, but on veth links it wakes the other end only where that
	 * has an XDP program too: where it polls because of GRO, the 257th packet and all after it are
	 * lost. */
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

#endif
