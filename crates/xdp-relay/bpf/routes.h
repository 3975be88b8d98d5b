/* Types shared by the programs and user space. src/bpf/layout.rs declares the same in Rust: change both together.
 *
 * Addresses are 16 bytes, IPv4 as ::ffff:a.b.c.d. Fields that packets carry are in their byte order. */
#pragma once

#include <linux/types.h>

/* Key of a packet. Written and compared in 64-bit words: a word assembled from smaller writes stalls the load, which
 * costs as much as the rest of a look-up. */
struct route_key {
	__u64 remote[2]; /* the sender */
	__u64 local[2];  /* the local address that it was sent to */
	__u64 ends;      /* from the lowest byte: remote port, local port, and the channel of ChannelData from a client;
			  * channel 0: a datagram from a peer */
};

/* Value of the map of keys: the index of the entry, and its generation. One word, read at once. */
struct entry_ref {
	__u32 entry;
	__u32 generation;
};

/* Forwarding of a packet: one cache line, which each program copies. */
struct route {
	__u32 source[4]; /* local address, outbound */
	__u32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	__be16 channel;  /* of the header to prepend for a client; 0: the header is removed */
	__u8 flags;      /* ROUTE_ bits */
	__u8 worker;     /* owner of the route */
	__u64 until;     /* expiry, nanoseconds of CLOCK_MONOTONIC */
	union {
		struct {
			__u32 bucket;     /* bandwidth limit; UNLIMITED: none */
			__u32 flow_label; /* of IPv6, outbound */
		};
		__u64 flow_cookie; /* of ROUTE_TO_RING: identifies the flow to the worker */
	};
	__u32 flow;       /* index of its counters */
	__u16 pseudo;     /* sum of the inbound pseudo header, without the length */
	__u16 udp_change; /* change of the UDP checksum's sum, without the length in ChannelData */
};

#define ROUTE_TO_V6 1   /* outbound family */
#define ROUTE_HAIRPIN 2 /* the peer is a relayed address of this host: a second route follows or precedes */
#define ROUTE_SELF_TEST 4   /* of the self-test: no next hop is looked up, and no packet leaves */
#define ROUTE_TO_RING 8  /* the client has a connection: packets are delivered to the worker's ring */

#define UNLIMITED 0xffffffff

/* An entry: two cache lines. User space writes it while `generation` is 0; afterwards only `until` and `bucket`
 * change, each a whole word, and the fields written by the programs. Withdrawing an entry sets `generation` to 0, and
 * the entry is not reused for several seconds. The two entries of a flow are adjacent: the one to its peer has an even
 * index, the one to its client the next.
 *
 * The fields after the generation record how the host's stack treated packets of the direction: proof that the
 * host's rules forward them by this next hop, with the headers that the program writes. The program that sees packets
 * leave copies their flow label to the route. */
struct entry {
	struct route route;
	struct route_key key;
	__u32 generation;
	__u32 punting;  /* packets are punted to the stack, see struct punt_state */
	__u64 proven; /* time of CLOCK_MONOTONIC at which one last left the stack with the expected headers, or reached
		       * its worker (ROUTE_TO_RING); 0: never, or the last one left altered */
	__u64 next_hop;    /* interface and link-layer address that it left by: next_hop_of */
};

/* Packets in the stack that are compared when they leave: one for each value of the upper bits of their fingerprint. */
#define PROBES 4
#define PROBE_BITS 2

/* State of an entry while packets of its direction are in the stack: a sequence, which ends when they have left. Times are
 * nanoseconds of CLOCK_MONOTONIC. The programs at both ends of the stack write it at once: the two numbers by atomic
 * additions; of concurrent writes of the rest either is right. src/bpf/entries.rs starts one, too. */
struct punt_state {
	__u64 first;    /* start of the sequence */
	__u64 last;     /* last packet that entered the stack; without a sequence: last one for which renewal was due */
	__u64 retry_at; /* time of the next attempt to renew the proof, after a failed one */
	__u32 entered;  /* packets that entered the stack since the start */
	__u32 left;     /* and that left it, or reached their worker (ROUTE_TO_RING) */
	__s32 lowest;   /* lowest difference of the two: none of the sequence was in the stack */
	__u32 due;      /* lower half of the time of the proof for which renewal is due */
	__u32 count;    /* times at which packets entered */
	__u16 why;      /* enum pass: reason of the first */
	__u16 settles;  /* there may be packets in the stack that entered before the start */
	__u64 left_at;  /* time at which one last left */
	__u64 altered;  /* time at which one last left with other headers than expected; 0: never */
	__u64 probes[PROBES]; /* packets in the stack whose treatment is evidence: probe_of; 0: none */
};

/* Packets follow those in the stack until all have left and a pause occurred. */
#define PUNT_PAUSE 250000ull /* nanoseconds since one left */
#define SETTLE_TIME 5000000ull /* nanoseconds in which packets leave that entered before the start */
#define PUNTS_MAX 256 /* times that packets entered; no pause is needed after half of them, */
#define PUNT_TIME_MAX 50000000ull /* nor half of these nanoseconds. Then packets may be reordered, */
#define PUNT_RETRY 250000000ull /* and nanoseconds until the next attempt */

/* Pause before a packet that renews a proof, in nanoseconds: time for relayed ones to leave the queues of their device.
 * A direction without a pause is not spared in the second half of the time until its proof expires. */
#define RENEWAL_PAUSE 500000ull

/* Time for which a probe is awaited, in ticks of 2^22 nanoseconds: a quarter of a second. The server's sockets hold
 * packets for less. */
#define PROBE_TICK 22
#define PROBE_TICKS 60

/* Time without proofs after a packet left altered, in nanoseconds: a rule may hit only some packets of a direction. */
#define ALTERED_HOLDS 4000000000ull

/* Header of a peer's datagram in the ring of a worker, before its payload. */
struct ring_datagram {
	__u64 flow_cookie;
	__u16 len;    /* bytes of payload; the bytes after them are stale */
	__be16 check; /* of UDP, as received; 0: none. User space verifies it */
	__u8 ttl;
	__u8 tos;
	__u8 partial; /* the checksum is partial: the sender is on this machine, and nothing is to be verified */
	__u8 zero;
};

/* Bytes of payload that are reserved: a datagram longer than the last goes to the socket. */
#define RING_SMALL 256
#define RING_MIDDLE 768
#define RING_MAX 1504

/* Counters of one processor for a flow: a client's channel in both directions. */
struct cell {
	__u64 to_peer_packets;
	__u64 to_peer_bytes; /* of payload */
	__u64 to_client_packets;
	__u64 to_client_bytes;
	__u64 to_peer_over; /* packets dropped by the bandwidth limit */
	__u64 to_client_over;
	__u64 seen;          /* time of the last packet */
	__u64 zero;
};

/* Bandwidth limit of an allocation. A packet that reads the old cost and the new window is limited by either. */
struct bucket {
	__u64 to_peer;   /* time at which the traffic admitted so far would have passed at the rate of the limit */
	__u64 to_client;
	__u64 cost;      /* nanoseconds of the bucket for 65,536 bytes; 0: unlimited */
	__u64 window;    /* nanoseconds of traffic that the bucket holds */
};

/* Ports of the server, a bit each: packets to other ports pass at once. */
struct port_filter {
	__u8 listener[8192];
	__u8 relay[8192];
};

/* An interface of this host. */
struct link {
	__u8 mac[6];
	__u8 leave; /* packets may leave by it: LEAVE_ bits */
	__u8 known; /* 0: unknown interface; LINK_ bits */
};

#define LINK_KNOWN 1
#define LINK_PARTIAL 2 /* XDP may get partial checksums by it, each of a single datagram */

#define LEAVE_XDP 1 /* packets received by XDP */
#define LEAVE_TC 2

#define WORKERS_MAX 256

/* Reasons for which a packet with a route is left to user space. */
enum pass {
	PASS_EXPIRED,      /* the route has expired, or the lease of its worker */
	PASS_RENEWAL,        /* periodic punt that renews the proof of its direction, or follows such a one */
	PASS_TTL,          /* time to live exceeded */
	PASS_CHECKSUM,     /* none, and IPv6 requires one, or perhaps a partial one that the program cannot handle */
	PASS_HAIRPIN,      /* no route at the other allocation */
	PASS_NO_ROUTE,     /* no next hop, or forwarding is disabled */
	PASS_NO_NEIGHBOUR, /* unresolved link-layer address of the next hop */
	PASS_TOO_LONG,     /* longer than the MTU of the link */
	PASS_LINK,         /* packets of this hook cannot leave by the outbound link */
	PASS_MERGED,       /* several packets merged by GRO, or follows such a one */
	PASS_ROOM,         /* no headroom for the headers */
	PASS_RING,         /* the worker's ring is full, or missing */
	PASS_STALE,        /* the route was withdrawn during the look-up */
	PASS_PROCESSOR,    /* this processor came online after the load: it has no counters */
	PASS_UNPROVEN,     /* no recent proof of its direction */
	PASS_MOVED,        /* the proof is of another next hop */
	PASS_ALTERED,      /* the host changes packets of its direction */
	OVERTAKEN,         /* not a pass: relayed while earlier ones may still be in the stack */
	PARTIAL,           /* not a pass: taken, with a partial checksum */
	PASSES,
};
