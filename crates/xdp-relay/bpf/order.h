/* Order of a direction's packets between the stack and the programs: while packets of it are in the stack, the next ones
 * follow them there. docs/adr/0017. */
#pragma once

#include "keys.h"

/* Signed: the coarse clock is behind the clock of proofs. */
static __always_inline __s64 age_of(const struct entry *entry, __u64 now)
{
	__u64 proven = *(volatile __u64 *)&entry->proven;
	return proven ? (__s64)(now - proven) : (__s64)(~0ull >> 1);
}

static __always_inline int is_unproven(const struct entry *entry, __u64 now)
{
	return proof_holds && age_of(entry, now) >= (__s64)proof_holds;
}

static __always_inline struct punt_state *state_of(struct found found)
{
	__u32 index = found.index;
	return bpf_map_lookup_elem(&punt_states, &index);
}

/* Starts a sequence. The programs count from it, so it is complete before `punting` is set. */
static __always_inline void start(struct entry *entry, struct punt_state *state, __u64 fine,
				  __u16 why, __u16 settles)
{
	state->first = fine;
	state->last = fine;
	state->entered = 0;
	state->left = 0;
	state->lowest = 0;
	state->count = 0;
	state->why = why;
	state->settles = settles;
	asm volatile("" : : : "memory");
	*(volatile __u32 *)&entry->punting = 1;
}

/* Packets in the stack, less an unknown number that were there at the start. */
static __always_inline __s32 inside(const struct punt_state *state)
{
	return *(volatile __u32 *)&state->entered - *(volatile __u32 *)&state->left;
}

/* So many packets leave the stack. */
static __always_inline void note_left(struct punt_state *state, __u64 fine, __u32 packets)
{
	state->left_at = fine;
	__sync_fetch_and_add(&state->left, packets);
	__s32 now = inside(state);
	if (now < state->lowest)
		state->lowest = now;
}

/* So many packets enter the stack. */
static __always_inline void note_entered(struct punt_state *state, __u64 fine, __u32 packets)
{
	__sync_fetch_and_add(&state->entered, packets);
	state->count += 1;
	state->last = fine;
}

/* No packet of the sequence is in the stack. Packets that left a moment ago may still be on their way to the device:
 * a pause comes first, unless the direction has none. */
static __always_inline int is_drained(const struct punt_state *state, __u64 fine)
{
	__s64 since = fine - state->first;
	if (inside(state) > state->lowest || (state->settles && since < (__s64)SETTLE_TIME))
		return 0;
	return (__s64)(fine - state->left_at) >= (__s64)PUNT_PAUSE ||
	       state->count >= PUNTS_MAX / 2 || since >= (__s64)PUNT_TIME_MAX / 2;
}

/* The packet must follow earlier ones of its direction through the stack. */
static __always_inline int must_follow(struct entry *entry, struct punt_state *state, __u64 now,
				       __u64 fine)
{
	if (!is_drained(state, fine)) {
		__s64 since = fine - state->first;
		int settling = state->settles && since < (__s64)SETTLE_TIME;
		if ((state->count < PUNTS_MAX || settling) && since < (__s64)PUNT_TIME_MAX)
			return 1;
		/* Behind a longer pause none is there any more: the stack dropped it. */
		if ((__s64)(fine - state->last) < (__s64)PUNT_TIME_MAX)
			passed(OVERTAKEN);
		state->retry_at = now + PUNT_RETRY;
	}
	*(volatile __u32 *)&entry->punting = 0;
	return 0;
}

/* The direction paused: packets relayed before are on the wire, so that one in the stack does not overtake them. The
 * first packet for which renewal is due only starts the clock. */
static __always_inline int has_paused(struct entry *entry, struct punt_state *state, __u64 now,
				      __u64 fine)
{
	__u32 due = entry->proven;
	__s64 pause = fine - state->last;
	int is_first = state->due != due;
	state->due = due;
	state->last = fine;
	if (is_first)
		return 0;
	return pause >= (__s64)RENEWAL_PAUSE ||
	       age_of(entry, now) >= (__s64)(renew_every + (proof_holds - renew_every) / 2);
}

/* The packet must be punted to the stack. */
static __always_inline int must_punt(struct found found, __u64 now)
{
	struct entry *entry = found.entry;
	__u32 punting = *(volatile __u32 *)&entry->punting;
	if (!punting && (!proof_holds || age_of(entry, now) < (__s64)renew_every))
		return 0;
	struct punt_state *state = state_of(found);
	if (!state || is_unproven(entry, now))
		return 1;
	__u64 fine = bpf_ktime_get_ns();
	if (punting)
		return must_follow(entry, state, now, fine);
	return now >= state->retry_at && has_paused(entry, state, now, fine);
}

/* Records that a packet of a direction enters the stack. Without a proof no packet is relayed that could overtake it, and
 * the proof starts a sequence. */
static __always_inline struct punt_state *enter(struct found found, __u64 now, __u16 why)
{
	if (is_unproven(found.entry, now))
		return 0;
	struct punt_state *state = state_of(found);
	if (!state)
		return 0;
	__u64 fine = bpf_ktime_get_ns();
	/* A merged packet behind others that have left has a sequence of its own, with its own limits; so has every packet
	 * behind others that the stack dropped. */
	int has_left = why == PASS_MERGED && inside(state) <= state->lowest &&
		       (!state->settles || fine - state->first >= SETTLE_TIME);
	int is_dropped = (__s64)(fine - state->last) >= (__s64)PUNT_TIME_MAX;
	if (!*(volatile __u32 *)&found.entry->punting || has_left || is_dropped)
		start(found.entry, state, fine, why, 0);
	note_entered(state, fine, 1);
	return state;
}

/* Counts a packet that passes for want of a proof, with the reason. The verifier examines it once. */
__noinline int pass_unproven(__u64 entry)
{
	__u32 index = entry;
	struct punt_state *state = bpf_map_lookup_elem(&punt_states, &index);
	__u64 altered = state ? state->altered : 0;
	int is_altered = altered && bpf_ktime_get_ns() - altered < ALTERED_HOLDS;
	return passed(is_altered ? PASS_ALTERED : PASS_UNPROVEN);
}

/* Leaves a packet to the stack, which the next ones of its direction follow. */
static __always_inline int punt(struct found found, __u64 now, __u16 why)
{
	struct punt_state *state = enter(found, now, why);
	if (state)
		return passed(state->why);
	pass_unproven(found.index);
	return -1;
}

/* As above, for reasons that have a counter of their own. Where no proof is required, as in tests, nothing leaves the
 * stack. */
static __always_inline int pass_in_order(struct found found, __u64 now, __u16 why)
{
	if (proof_holds)
		enter(found, now, why);
	return passed(why);
}

/* Datagrams in a packet that is to be segmented, with so many bytes before the first payload. */
static __always_inline __u32 segments_of(const struct __sk_buff *skb, __u32 before)
{
	if (skb->gso_segs > 1 || !skb->gso_size || skb->len <= before)
		return skb->gso_segs > 1 ? skb->gso_segs : 1;
	/* Not every driver tells their number. */
	return (skb->len - before + skb->gso_size - 1) / skb->gso_size;
}

/* Segments of a packet that are examined, which is as many as the kernel merges. */
#define SEGMENTS_MAX 64

/* Records so many more of a sequence. */
static __always_inline void enter_more(struct punt_state *state, __u32 packets)
{
	if (state)
		__sync_fetch_and_add(&state->entered, packets);
}

/* Records merged packets of one route, and of that of the other allocation. Returns whether there is a route. The verifier
 * examines it once, instead of at each of 64 calls in a loop; Linux 5.12 can do that. */
__noinline int enter_run(struct route_key *key, struct route *route, __u64 now, __u32 packets)
{
	if (!key || !route)
		return 0;
	struct found found = read_route(key, route);
	if (!found.entry)
		return 0;
	enter_more(enter(found, now, PASS_MERGED), packets - 1);
	if (route->flags & ROUTE_HAIRPIN && !route->channel) {
		struct route_key last = {};
		__builtin_memcpy(last.remote, route->source, sizeof(last.remote));
		__builtin_memcpy(last.local, route->destination, sizeof(last.local));
		last.ends = ends_of(route->source_port, route->destination_port);
		struct found other = read_route(&last, route);
		if (other.entry)
			enter_more(enter(other, now, PASS_MERGED), packets - 1);
	}
	return 1;
}
