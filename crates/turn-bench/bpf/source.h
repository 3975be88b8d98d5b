/* Makes the frames of a run, one per call, in frames that BPF_PROG_TEST_RUN takes from a page pool.
 *
 * Everything that is the same for all frames of a flow was written by user space into a template
 * (src/frames/template.rs). What is left: whose turn it is, the sequence number, the time, and the
 * checksum of those. */
#ifndef SOURCE_H
#define SOURCE_H

#include "frame.h"

/* Threads that make frames at the same time, each with flows of its own. User space tells which it is
 * by the length of the metadata in front of its frames: 4 bytes are the first, 32 the last. What the
 * metadata holds says nothing: it may have been written over when a frame was used before. */
#define SOURCES_MAX 8

/* Flows of all sources. */
#define TEMPLATES_MAX 65536

/* The longest headers: Ethernet, IPv6, UDP, ChannelData, packet: 14 + 40 + 8 + 4 + 24 = 90. */
#define HEADERS_MAX 96

struct template {
	__u8 headers[HEADERS_MAX];
	__u64 sum; /* of the words that the UDP checksum covers, but for those written here */
};

struct state {
	/* Written by user space before a run. */
	__u64 interface;  /* where frames leave */
	__u64 first;      /* the template of its first flow */
	__u64 flows;      /* how many it has, from there on */
	__u64 burst;      /* packets of a flow when it has its turn */
	__u64 headers;    /* bytes of the templates in use */
	__u64 udp_at;     /* where in a frame the UDP header is */
	__u64 packet_at;  /* where in a frame the packet's header is */
	__u64 from, to;   /* the measured window: from <= sent < to */
	__u64 begin, end; /* nothing leaves before and after */
	__u64 clump;      /* packets leave at multiples of this many nanoseconds, counted from begin */
	__u64 step;       /* 1/256 nanoseconds from one burst to the next; 0 is as fast as it goes */
	/* Written here. */
	__u64 next;       /* when the next burst is due, in 1/256 nanoseconds from begin on */
	__u64 missed;     /* bursts of the window that were left out: this core was kept from its work */
	__u64 flow;       /* whose turn it is */
	__u64 within;     /* packets of its turn already made */
	__u64 before;     /* packets that each flow sent in earlier turns */
	__u64 made;       /* frames of the run */
	__u64 measured;   /* those in the window */
	__u64 clump_now;  /* the clump that is leaving */
	__u64 in_clump;   /* bursts of it */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TEMPLATES_MAX);
	__type(key, __u32);
	__type(value, struct template);
} templates SEC(".maps");

/* Not per CPU: one thread makes the frames of a source, wherever it may be moved. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SOURCES_MAX);
	__type(key, __u32);
	__type(value, struct state);
} states SEC(".maps");

/* A sender that was kept from its work this long catches up; what is older it leaves out. The same is
 * so for sockets (src/engine/pace.rs). */
#define CATCH_UP_NS 10000000ULL

/* While it catches up, a clump is as many times as large as otherwise: what is larger finds no room at the
 * other end of a veth link, and would count as lost by the server. */
#define CATCH_UP_TIMES 2

/* Whether the packet that is next may leave. */
static __always_inline int due(struct state *state, __u64 now)
{
	if (now < state->begin || now >= state->end)
		return 0;
	/* What has begun is finished, and without a rate there is nothing to wait for. */
	if (state->within || !state->step)
		return 1;
	__u64 elapsed = now - state->begin;
	__u64 step = state->step;
	if (elapsed > CATCH_UP_NS && (elapsed - CATCH_UP_NS) << 8 > state->next) {
		__u64 late = (((elapsed - CATCH_UP_NS) << 8) - state->next) / step;
		state->next += late * step;
		if (now >= state->from)
			state->missed += late;
	}
	__u64 clump = state->clump ? state->clump : 1;
	__u64 number = elapsed / clump;
	if (number * clump < state->next >> 8)
		return 0;
	if (number != state->clump_now) {
		state->clump_now = number;
		state->in_clump = 0;
	}
	if (state->in_clump > CATCH_UP_TIMES * (clump << 8) / step)
		return 0;
	state->in_clump++;
	return 1;
}

static __always_inline int make_frame(struct xdp_md *ctx)
{
	/* Step 1: which source, by the metadata, which must not leave with the frame: a program at the
	 * other end of a veth link would see it. */
	__u32 metadata = ctx->data - ctx->data_meta;
	__u32 source = metadata / 4 - 1;
	struct state *state = bpf_map_lookup_elem(&states, &source);
	if (!state)
		return XDP_ABORTED;
	/* Waiting is done here: a call of the kernel makes a page pool, and a pool whose pages are still on
	 * their way is kept for seconds, so that a call for each clump would drown it in pools. */
	__u64 now = bpf_ktime_get_ns();
	if (!due(state, now))
		return XDP_DROP;
	if (bpf_xdp_adjust_meta(ctx, metadata))
		return XDP_ABORTED;

	/* Step 2: whose turn it is, and which of its packets this is. */
	__u32 flow = state->first + state->flow;
	__u32 sequence = state->before + state->within;
	struct template *template = bpf_map_lookup_elem(&templates, &flow);
	if (!template)
		return XDP_ABORTED;

	/* Step 3: the headers. The frame may have been another flow's before, and the other end may have
	 * written to it (MAC addresses, ports, a shorter header); the filler is nobody's to write. */
	__u64 length = state->headers;
	if (length < 1 || length > HEADERS_MAX)
		return XDP_ABORTED;
	if (bpf_xdp_store_bytes(ctx, 0, template->headers, length))
		return XDP_ABORTED;

	/* Step 4: sequence number and time. */
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct header *header = data + (state->packet_at & 127);
	if ((void *)(header + 1) > end)
		return XDP_ABORTED;
	header->sequence = bpf_htonl(sequence);
	header->sent_high = bpf_htonl(now >> 32);
	header->sent_low = bpf_htonl(now);

	/* Step 5: the checksum. 32-bit words may be summed as they are: folding takes them apart. */
	struct udphdr *udp = data + (state->udp_at & 127);
	if ((void *)(udp + 1) > end)
		return XDP_ABORTED;
	udp->check = udp_checksum(template->sum + sequence + (now >> 32) + (__u32)now);

	/* Step 6: whose turn is next. */
	state->within++;
	if (state->within >= state->burst) {
		state->within = 0;
		state->next += state->step;
		state->flow++;
		if (state->flow >= state->flows) {
			state->flow = 0;
			state->before += state->burst;
		}
	}
	state->made++;
	if (now >= state->from && now < state->to)
		state->measured++;

	/* Step 7: out. */
	return bpf_redirect(state->interface, 0);
}

#endif
