/* Counts the packets of a run where they arrive, and takes them off the link (or sends them back).
 * Everything else passes: orders, STUN, ARP, packets of other runs. */
#ifndef SINK_H
#define SINK_H

#include "reflect.h"

/* Latencies in nanoseconds: one bucket per value below 32, then 32 for each doubling, up to 2^36. */
#define STEPS_BITS 5
#define STEPS (1 << STEPS_BITS)
#define VALUE_BITS 36
#define BUCKETS ((VALUE_BITS - STEPS_BITS + 1) * STEPS)

/* Flows whose sequence is followed. */
#define FLOWS_MAX 65536

struct watched {
	__u64 run;   /* 0: none is watched */
	__u64 count; /* counts up each time from nothing: what was seen before does not matter */
	__u64 flows; /* numbers below this are flows of the run */
	__u64 size;  /* of every packet */
	__u64 reflect; /* not 0: packets of the run go back where they came from */
	__u64 from, to; /* the measured window: from <= sent < to */
};

/* What arrived of the run. Of the first five, only what was sent in the window is counted. */
struct tally {
	__u64 delivered;   /* each once */
	__u64 duplicates;  /* again */
	__u64 reordered;   /* those of `delivered` behind a later one of their flow */
	__u64 bytes;       /* of the packets in `delivered` */
	__u64 latency_max; /* nanoseconds */
	__u64 damaged;     /* not what was sent */
	__u64 outside;     /* sent before or after the window */
	__u64 early_last;  /* when the last of those before the window was sent */
	__u64 other_run;   /* packets of another run, which pass */
	__u64 latency[BUCKETS];
};

/* The last packets of a flow. */
struct seen {
	__u32 count;   /* other than that of what is watched: nothing was seen */
	__u32 highest; /* the highest sequence number */
	__u64 bits;    /* bit n: number highest - n was seen */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct watched);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

/* Not per CPU: a flow stays in one queue of the link, and that is served by one CPU at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOWS_MAX);
	__type(key, __u32);
	__type(value, struct seen);
} flows SEC(".maps");

enum order { NEXT, LATE, AGAIN };

/* Notes a packet of a flow. One that is more than 63 behind is taken as late: that it came before
 * can no longer be known. */
static __always_inline enum order note(struct seen *seen, __u32 count, __u32 sequence)
{
	if (seen->count != count) {
		seen->count = count;
		seen->highest = sequence;
		seen->bits = 1;
		return NEXT;
	}
	if (sequence > seen->highest) {
		__u32 ahead = sequence - seen->highest;
		seen->bits = ahead < 64 ? seen->bits << ahead | 1 : 1;
		seen->highest = sequence;
		return NEXT;
	}
	__u32 behind = seen->highest - sequence;
	if (behind > 63)
		return LATE;
	__u64 bit = 1ull << behind;
	if (seen->bits & bit)
		return AGAIN;
	seen->bits |= bit;
	return LATE;
}

/* The bucket of a latency. */
static __always_inline __u32 bucket_of(__u64 value)
{
	if (value >> VALUE_BITS)
		return BUCKETS - 1;
	/* How many bits the value has beyond those that choose a step, by halving. */
	__u32 shift = 0;
	__u64 rest = value >> (STEPS_BITS + 1);
	if (rest >> 16) { shift += 16; rest >>= 16; }
	if (rest >> 8) { shift += 8; rest >>= 8; }
	if (rest >> 4) { shift += 4; rest >>= 4; }
	if (rest >> 2) { shift += 2; rest >>= 2; }
	if (rest >> 1) { shift += 1; rest >>= 1; }
	shift += rest;
	return shift * STEPS + (value >> shift);
}

static __always_inline int count_packet(struct xdp_md *ctx)
{
	/* Step 1: whether a run is watched at all. */
	__u32 zero = 0;
	struct watched *run = bpf_map_lookup_elem(&watched, &zero);
	if (!run || !run->run)
		return XDP_PASS;

	/* Step 2: whether the frame holds a packet of a run. */
	struct packet packet;
	if (!find_packet(ctx, &packet))
		return XDP_PASS;
	struct tally *tally = bpf_map_lookup_elem(&tallies, &zero);
	if (!tally)
		return XDP_PASS;

	/* Step 3: of this run, such as it was sent, and within the window. */
	struct header *header = packet.header;
	if (bpf_ntohl(header->run) != run->run) {
		tally->other_run++;
		return XDP_PASS;
	}
	__u32 flow = bpf_ntohl(header->flow);
	struct seen *seen = bpf_map_lookup_elem(&flows, &flow);
	if (!packet.correct || packet.size != run->size || flow >= run->flows || !seen) {
		tally->damaged++;
		return XDP_DROP;
	}
	enum order order = note(seen, run->count, bpf_ntohl(header->sequence));
	__u64 sent = (__u64)bpf_ntohl(header->sent_high) << 32 | bpf_ntohl(header->sent_low);
	int verdict = run->reflect ? turn_back(ctx, &packet) : XDP_DROP;
	if (sent < run->from || sent >= run->to) {
		tally->outside++;
		if (sent < run->from && sent > tally->early_last)
			tally->early_last = sent;
		return verdict;
	}

	/* Step 4: counted. */
	if (order == AGAIN) {
		tally->duplicates++;
		return verdict;
	}
	if (order == LATE)
		tally->reordered++;
	tally->delivered++;
	tally->bytes += packet.size;

	/* Step 5: how long it took, where both ends have the same clock. */
	__u64 now = bpf_ktime_get_ns();
	if (now < sent)
		return verdict;
	__u64 latency = now - sent;
	if (latency > tally->latency_max)
		tally->latency_max = latency;
	__u32 bucket = bucket_of(latency);
	if (bucket < BUCKETS)
		tally->latency[bucket]++;
	return verdict;
}

#endif
