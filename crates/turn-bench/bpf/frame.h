/* What the programs know of frames, and of the packets of a run (src/packet.rs). */
#ifndef FRAME_H
#define FRAME_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* "TpB", and the kind of packets that belong to a run. */
#define MAGIC_OF_DATA bpf_htonl(0x54704200)

/* Channel numbers are 0x4000 to 0x4fff (RFC 8656, section 12). */
#define IS_CHANNEL(first_byte) (((first_byte) & 0xf0) == 0x40)

/* The header of a packet of a run. */
struct header {
	__be32 magic;
	__be32 run;
	__be32 flow;
	__be32 sequence;
	__be32 sent_high;
	__be32 sent_low;
};

/* The header of ChannelData. */
struct channel_data {
	__be16 number;
	__be16 length;
};

/* A packet of a run in its frame. What may be there or not is told by numbers beside the pointers: the
 * verifier does not take a pointer into a frame for different from NULL. */
struct packet {
	struct ethhdr *eth;
	void *ip;      /* of version 6 where `ipv6` is 1, else of version 4 */
	struct udphdr *udp;
	struct header *header;
	__u32 ipv6;
	__u32 channel; /* 1 where ChannelData has its header in front of the packet's */
	__u32 size;    /* of the packet, from its header to the end of its filler */
	__u32 correct; /* 1 where all lengths agree */
};

/* Finds a packet of a run in a frame. Answers 0 for all else: other protocols, orders and answers of
 * the benchmark, STUN, IP with options, fragments, datagrams too short for the header. */
static __always_inline int find_packet(struct xdp_md *ctx, struct packet *found)
{
	void *end = (void *)(long)ctx->data_end;
	__u32 ip_payload;

	/* Ethernet, without tags. */
	struct ethhdr *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > end)
		return 0;
	found->eth = eth;
	found->ip = eth + 1;

	/* IP, whole and without options, holding UDP. */
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);
		if ((void *)(ip + 1) > end)
			return 0;
		if (ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP)
			return 0;
		if (ip->frag_off & bpf_htons(0x3fff))
			return 0;
		found->ipv6 = 0;
		found->udp = (void *)(ip + 1);
		ip_payload = bpf_ntohs(ip->tot_len) - sizeof(*ip);
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(eth + 1);
		if ((void *)(ip + 1) > end)
			return 0;
		if (ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
			return 0;
		found->ipv6 = 1;
		found->udp = (void *)(ip + 1);
		ip_payload = bpf_ntohs(ip->payload_len);
	} else {
		return 0;
	}

	/* UDP, with room for the shortest packet. */
	struct udphdr *udp = found->udp;
	struct header *header = (void *)(udp + 1);
	if ((void *)(header + 1) > end)
		return 0;
	__u32 udp_length = bpf_ntohs(udp->len);
	__u32 payload = udp_length - sizeof(*udp);
	found->correct = udp_length == ip_payload && (void *)udp + udp_length <= end;

	/* The packet itself, as it goes between server and peer ... */
	if (header->magic == MAGIC_OF_DATA) {
		found->channel = 0;
		found->header = header;
		found->size = payload;
		if (payload < sizeof(*header))
			found->correct = 0;
		return 1;
	}

	/* ... or behind the header of ChannelData, which may be followed by up to 3 bytes of padding. */
	struct channel_data *channel = (void *)(udp + 1);
	if (!IS_CHANNEL(*(__u8 *)channel))
		return 0;
	header = (void *)(channel + 1);
	if ((void *)(header + 1) > end || header->magic != MAGIC_OF_DATA)
		return 0;
	__u32 length = bpf_ntohs(channel->length);
	__u32 padding = payload - sizeof(*channel) - length;
	if (padding > 3 || length < sizeof(*header))
		found->correct = 0;
	found->channel = 1;
	found->header = header;
	found->size = length;
	return 1;
}

/* Folds a sum of 16-bit words into the checksum of UDP. Never 0, which would mean that there is none. */
static __always_inline __be16 udp_checksum(__u64 sum)
{
	/* The folds leave at most 33, 18, 17 and 16 bits. */
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	__u16 checksum = ~sum;
	return bpf_htons(checksum ? checksum : 0xffff);
}

#endif
