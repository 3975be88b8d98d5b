/* Partial checksums: on virtual links a sender of this machine leaves the sum of the pseudo header alone in the field,
 * for the device to complete that sends the packet to a wire, if any. docs/adr/0015.
 *
 * At tc the packet stays what it is: the kernel completes it from a fixed place in its buffer, so the UDP header must
 * stay there, and the payload moves. XDP has no packet of the kernel's: the program completes the checksum. */
#pragma once

#include "packet.h"

/* Bytes that `bpf_csum_diff` adds up at once before Linux 6.13. */
#define SUM_MAX 512

/* Room to move a payload. */
struct scratch {
	__u32 in_use;
	__u8 payload[FRAME_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* Where the payload of UDP begins. */
static __always_inline __u32 payload_at(const struct packet *packet)
{
	return ETH_HLEN + (packet->v6 ? IPV6_LEN : IPV4_LEN) + sizeof(struct udphdr);
}

/* The field has the sum of the pseudo header: a partial checksum, or a complete one by chance. */
static __always_inline int looks_partial(const struct packet *packet, const struct route *route)
{
	__be16 len = bpf_htons(packet->payload + sizeof(struct udphdr));
	return packet->check == fold((__u32)route->pseudo + len);
}

/* The kernel knows if a packet's checksum is partial: then this helper leaves the field as it is, since the completion
 * will cover the change. Restores the packet. Negative: unknown. */
static __always_inline int is_partial(struct __sk_buff *skb, struct packet *packet)
{
	__u32 at = payload_at(packet) - sizeof(packet->check);
	__be16 check;
	if (bpf_l4_csum_replace(skb, at, 0, 1, sizeof(check)) ||
	    bpf_skb_load_bytes(skb, at, &check, sizeof(check)))
		return -1;
	if (check == packet->check)
		return 1;
	return bpf_skb_store_bytes(skb, at, &packet->check, sizeof(check), 0) ? -1 : 0;
}

/* Adds up the pseudo header of a packet that leaves. Words of IPv4-mapped addresses besides the address are all ones,
 * or zeros, which change no sum. */
static __always_inline __u64 sum_of_pseudo(const struct route *route, __u16 udp_len)
{
	__u64 sum = bpf_htons(IPPROTO_UDP) + bpf_htons(udp_len);
	for (int i = 0; i < 4; i++)
		sum += (__u64)route->source[i] + route->destination[i];
	return sum;
}

static __always_inline __u16 fold_all(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	return fold((sum & 0xffff) + (sum >> 16));
}

/* Adds up the payload that is relayed. Negative: too long. */
static __always_inline __s64 sum_of_payload(void *start, void *end, __u32 len)
{
	__u64 sum = 0;
	if (len >= FRAME_MAX)
		return -1;
	/* A value of its own: what the verifier learns of the length by comparing it would multiply its work. */
	__u32 whole = len / SUM_MAX;
	for (__u32 i = 0; i < FRAME_MAX / SUM_MAX; i++) {
		if (i >= whole)
			break;
		void *part = start + i * SUM_MAX;
		if (part + SUM_MAX > end)
			return -1;
		sum += (__u32)bpf_csum_diff(0, 0, part, SUM_MAX, 0);
	}
	/* The rest: its bits are lengths. */
#pragma unroll
	for (__u32 size = SUM_MAX / 2; size >= 4; size /= 2) {
		if (!(len & size))
			continue;
		__u32 at = len & (FRAME_MAX - 1) & ~(2 * size - 1);
		asm volatile("" : "+r"(at));
		void *part = start + (at & (FRAME_MAX - 1));
		if (part + size > end)
			return -1;
		sum += (__u32)bpf_csum_diff(0, 0, part, size, 0);
	}
	__u32 at = len & (FRAME_MAX - 1) & ~3u;
	asm volatile("" : "+r"(at));
	__u8 *last = start + (at & (FRAME_MAX - 1));
	for (__u32 i = 0; i < 3; i++) {
		if (i >= (len & 3))
			break;
		void *after = last + i + 1;
		/* Keeps the compiler from adding to the end instead. */
		asm volatile("" : "+r"(after));
		if (after > end)
			return -1;
		sum += (__u32)last[i] << (i & 1 ? 8 : 0);
	}
	return fold_all(sum);
}

static __always_inline __u16 udp_len_of(const struct route *route, __u16 payload)
{
	return sizeof(struct udphdr) + (route->channel ? CHANNEL_HEADER : 0) + payload;
}

/* The partial checksum of a packet that leaves, for the kernel to complete. */
static __always_inline __u16 partial_check(const struct route *route, __u16 payload)
{
	return fold_all(sum_of_pseudo(route, udp_len_of(route, payload)));
}

/* The complete checksum of a packet that leaves. */
static __always_inline __u16 complete_check(const struct route *route, __u16 payload, __u32 payload_sum)
{
	__u16 udp_len = udp_len_of(route, payload);
	__u64 sum = sum_of_pseudo(route, udp_len) + payload_sum;
	sum += (__u64)route->source_port + route->destination_port + bpf_htons(udp_len);
	if (route->channel)
		sum += (__u64)route->channel + bpf_htons(payload);
	__u16 check = ~fold_all(sum);
	return check ? check : 0xffff;
}

/* Moves the payload to make or close the gap of a ChannelData header, and cuts off what follows the datagram, which the
 * completion would cover. Negative: the packet is damaged. */
static __always_inline int move_payload(struct __sk_buff *skb, __u32 from, __u32 to, __u32 len)
{
	__u32 only = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &only);
	if (!scratch || (to > from && bpf_skb_change_tail(skb, to + len, 0)))
		return -1;
	if (len > 0 && to != from) {
		/* The bounds for the verifier: before Linux 6.8 it does not learn from a comparison with 0 that the
		 * length is not 0. */
		__u32 before_last = len - 1;
		asm volatile("" : "+r"(before_last));
		if (before_last >= FRAME_MAX)
			return -1;
		__u32 size = before_last + 1;
		/* A real-time kernel may interrupt one packet for another. */
		if (__sync_val_compare_and_swap(&scratch->in_use, 0, 1))
			return -1;
		int failed = bpf_skb_load_bytes(skb, from, scratch->payload, size) ||
			     bpf_skb_store_bytes(skb, to, scratch->payload, size, 0);
		scratch->in_use = 0;
		if (failed)
			return -1;
	}
	return to <= from && bpf_skb_change_tail(skb, to + len, 0) ? -1 : 0;
}
