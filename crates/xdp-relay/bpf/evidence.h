/* Evidence of the treatment of a direction by the host: a packet that enters the stack is remembered as a probe, and
 * compared with what leaves. docs/adr/0009. */
#pragma once

#include "order.h"

/* Bytes of payload in a fingerprint, if there are as many: sequence numbers of RTP, RTCP, DTLS and STUN are in them. */
#define PRINT_BYTES 16

/* A packet that enters the stack: it is to leave as the program would have sent it. */
struct entering {
	/* Entries of which it becomes a probe, each index + 1; 0: none. The first is of the inbound route of two
	 * allocations, the second of the outbound route. */
	__u32 places[2];
	__u32 at;        /* start of the payload */
	__u32 len;       /* bytes of the payload */
	__u16 fields[2]; /* fields_of when it leaves by each */
	__u32 zero;
};

/* A packet that leaves, and the entry of its direction. */
struct leaving {
	__u64 next_hop;
	__u32 index;  /* of the entry */
	__u32 at;     /* start of the payload of the next datagram */
	__u32 len;    /* bytes of the payload */
	__u32 label;  /* flow label of IPv6 */
	__u16 fields; /* fields_of */
	__u8 v6;
	__u8 odd; /* other header fields are not as the server sends them */
};

/* The IP header fields that a relayed packet keeps, in one word. */
static __always_inline __u16 fields_of(__u8 tos, __u8 ttl)
{
	return (__u16)ttl << 8 | tos;
}

/* Identifies a datagram of a direction by the length and the first bytes of its payload, which stay as they are. Never 0. */
static __always_inline __u32 fingerprint_of(const __u64 *words, __u32 len)
{
	__u64 mixed = (words[0] ^ len) * 0x9e3779b97f4a7c15ull;
	mixed = (mixed ^ mixed >> 29 ^ words[1]) * 0xbf58476d1ce4e5b9ull;
	return mixed >> 32 | 1;
}

/* A probe in one word: from the lowest bit its fingerprint, its fields when it leaves, and the time in ticks. */
static __always_inline __u64 probe_of(__u32 print, __u16 fields, __u64 fine)
{
	return fine >> PROBE_TICK << 48 | (__u64)fields << 32 | print;
}

/* Remembers a packet of an entry that enters the stack, unless another one with such a fingerprint is awaited. */
static __always_inline void remember_one(__u32 index, __u32 print, __u16 fields)
{
	struct punt_state *state = bpf_map_lookup_elem(&punt_states, &index);
	if (!state)
		return;
	__u64 *probe = &state->probes[print >> (32 - PROBE_BITS)];
	__u64 before = *probe, fine = bpf_ktime_get_ns();
	__u16 ticks = (__u16)(fine >> PROBE_TICK) - (__u16)(before >> 48);
	if (!before || ticks >= PROBE_TICKS)
		*probe = probe_of(print, fields, fine);
}

static __always_inline void remember(const struct entering *entering, const __u64 *words)
{
	__u32 print = fingerprint_of(words, entering->len);
	for (int i = 0; i < 2; i++)
		if (entering->places[i])
			remember_one(entering->places[i] - 1, print, entering->fields[i]);
}

/* Remembers a packet that is punted. The verifier examines it once, instead of for each reason. */
__noinline int remember_xdp(struct xdp_md *ctx, const struct entering *entering)
{
	__u64 words[PRINT_BYTES / 8] = {};
	if (!entering)
		return 0;
	if (entering->len >= PRINT_BYTES) {
		void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
		if (entering->at > HEADERS_MAX)
			return 0;
		void *payload = data + entering->at;
		if (payload + sizeof(words) > end)
			return 0;
		__builtin_memcpy(words, payload, sizeof(words));
	}
	remember(entering, words);
	return 0;
}

__noinline int remember_tc(struct __sk_buff *skb, const struct entering *entering)
{
	__u64 words[PRINT_BYTES / 8] = {};
	if (!entering)
		return 0;
	if (entering->len >= PRINT_BYTES &&
	    bpf_skb_load_bytes(skb, entering->at, words, sizeof(words)))
		return 0;
	remember(entering, words);
	return 0;
}

/* Compares the datagram at `at` with the probes, and records the result. Returns true if it proves the direction anew.
 * The verifier examines it once, instead of at each of 64 calls in a loop. */
__noinline int compare(struct __sk_buff *skb, struct leaving *leaving)
{
	__u64 words[PRINT_BYTES / 8] = {};
	if (!leaving || !proof_holds)
		return 0;
	__u32 index = leaving->index;
	struct punt_state *state = bpf_map_lookup_elem(&punt_states, &index);
	struct entry *entry = bpf_map_lookup_elem(&entries, &index);
	if (!state || !entry)
		return 0;
	if (leaving->len >= PRINT_BYTES &&
	    bpf_skb_load_bytes(skb, leaving->at, words, sizeof(words)))
		return 0;
	__u32 print = fingerprint_of(words, leaving->len);
	__u64 *slot = &state->probes[print >> (32 - PROBE_BITS)];
	__u64 probe = *slot;
	if ((__u32)probe != print)
		return 0;
	*slot = 0;
	__u64 fine = bpf_ktime_get_ns();
	if ((__u16)(probe >> 32) != leaving->fields || leaving->odd) {
		state->altered = fine;
		*(volatile __u64 *)&entry->proven = 0;
		return 0;
	}
	if (state->altered && fine - state->altered < ALTERED_HOLDS)
		return 0;
	__u64 next_hop = leaving->next_hop;
	int is_new = proof_holds && (is_unproven(entry, fine) || entry->next_hop != next_hop);
	/* The programs relay from here on, and there may be packets in the stack that were not counted. */
	if (is_new) {
		start(entry, state, fine, PASS_UNPROVEN, 1);
		state->left_at = fine;
	}
	if (leaving->v6 && entry->route.flow_label != leaving->label)
		*(volatile __u32 *)&entry->route.flow_label = leaving->label;
	*(volatile __u64 *)&entry->next_hop = next_hop;
	*(volatile __u64 *)&entry->proven = fine;
	return is_new;
}

/* Finds the direction of a packet that leaves. `key` is the key of the reverse direction of its flow; the entry of its
 * own direction is adjacent. Returns its state if packets of it are counted or awaited. */
static __always_inline struct punt_state *find_direction(const struct route_key *key,
							 struct leaving *leaving)
{
	struct entry_ref *found = bpf_map_lookup_elem(&routes, key);
	if (!found)
		return 0;
	__u64 place = *(volatile __u64 *)found;
	__u32 index = place;
	struct entry *other = bpf_map_lookup_elem(&entries, &index);
	if (!other || *(volatile __u32 *)&other->generation != place >> 32 ||
	    !is_key(&other->key, key))
		return 0;
	index ^= 1;
	struct entry *entry = bpf_map_lookup_elem(&entries, &index);
	if (!entry || !*(volatile __u32 *)&entry->generation)
		return 0;
	leaving->index = index;
	return bpf_map_lookup_elem(&punt_states, &index);
}

/* Records that datagrams of a direction leave, of which `compare` proved it anew or not. */
static __always_inline void note_all(struct punt_state *state, __u32 index, int is_new,
				     __u32 packets)
{
	struct entry *entry = bpf_map_lookup_elem(&entries, &index);
	if (entry && !is_new && *(volatile __u32 *)&entry->punting)
		note_left(state, bpf_ktime_get_ns(), packets);
}

/* Packets of the direction are awaited. */
static __always_inline int awaits(const struct punt_state *state)
{
	return (state->probes[0] | state->probes[1] | state->probes[2] | state->probes[3]) != 0;
}
