/* Keys of packets, and the routes of keys. */
#pragma once

#include "maps.h"

static __always_inline __u64 ends_of(__be16 remote, __be16 local)
{
	return (__u64)local << 16 | remote;
}

static __always_inline __u64 with_channel(__u64 ends, __be16 channel)
{
	ends = (__u64)channel << 32 | (__u32)ends;
	/* Keeps the compiler from writing half of it. */
	asm volatile("" : "+r"(ends));
	return ends;
}

/* By words: the compiler's own comparison is byte by byte. */
static __always_inline int is_key(const struct route_key *one, const struct route_key *other)
{
	return !((one->remote[0] ^ other->remote[0]) | (one->remote[1] ^ other->remote[1]) |
		 (one->local[0] ^ other->local[0]) | (one->local[1] ^ other->local[1]) |
		 (one->ends ^ other->ends));
}

static __always_inline __be16 channel_of(const struct route_key *key)
{
	return key->ends >> 32;
}

static __always_inline int is_channel(__u16 number)
{
	return number >= CHANNEL_MIN && number <= CHANNEL_MAX;
}

/* Copies the route of a key. User space may withdraw routes and reuse their entries at any time: the copy is valid only
 * if the entry still has the generation found with the key, and the same key. Withdrawing a route thus takes effect at
 * once, and an entry is not rewritten for several seconds. 0: no route. */
static __always_inline struct found read_route(const struct route_key *key, struct route *route)
{
	struct found none = {};
	struct entry_ref *place_of = bpf_map_lookup_elem(&routes, key);
	if (!place_of)
		return none;
	__u64 place = *(volatile __u64 *)place_of;
	__u32 index = place;
	struct entry *entry = bpf_map_lookup_elem(&entries, &index);
	if (!entry)
		return none;
	__builtin_memcpy(route, &entry->route, sizeof(*route));
	/* The copy is complete before this is read. */
	asm volatile("" : : : "memory");
	__u32 generation = *(volatile __u32 *)&entry->generation;
	/* The map may reuse the element of a key during the read as well. */
	if (generation != place >> 32 || !is_key(&entry->key, key)) {
		passed(PASS_STALE);
		return none;
	}
	return (struct found){ entry, index };
}

/* A link-layer address in one word. By half-words: the compiler's own copy is byte by byte. */
static __always_inline __u64 mac_of(const void *mac)
{
	const __u16 *halves = mac;
	return (__u64)halves[2] << 32 | (__u32)halves[1] << 16 | halves[0];
}

/* A next hop in one word. */
static __always_inline __u64 next_hop_of(__u32 interface, const void *mac)
{
	return (__u64)interface << 48 | mac_of(mac);
}
