/* What the programs and user space share. src/layout.rs says the same in Rust: change both together.
 *
 * Addresses are 16 bytes, IPv4 as ::ffff:a.b.c.d. Fields that packets carry are in their byte order. */
#pragma once

#include <linux/types.h>

/* By what a packet is known. It is written and compared in words of 64 bits: one that was put together of smaller
 * writes takes a processor as long to read as the rest of a look-up. */
struct route_key {
	__u64 remote[2]; /* who sent it */
	__u64 local[2];  /* the address of ours that it was sent to */
	__u64 ends;      /* from the lowest byte: the port of each, and the channel of ChannelData from a client; 0: a
			  * datagram from a peer */
};

/* What the map of keys holds: which entry is the key's, and its generation. One word, read at once. */
struct place {
	__u32 entry;
	__u32 generation;
};

/* What becomes of it: one cache line, of which each program makes a copy. */
struct route {
	__u32 source[4]; /* of ours, on the way out */
	__u32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	__be16 channel;  /* to be put in front for a client; 0: what is in front is taken off */
	__u8 flags;      /* ROUTE_ bits */
	__u8 worker;     /* whose route it is */
	__u64 until;     /* of CLOCK_MONOTONIC, nanoseconds: it forwards nothing from then on */
	union {
		struct {
			__u32 bucket;     /* the bucket that limits it; UNLIMITED: as much as comes */
			__u32 flow_label; /* of IPv6, on the way out */
		};
		__u64 ticket; /* of ROUTE_HANDED: what the worker knows it by */
	};
	__u32 flow;       /* the flow that counts it */
	__u16 pseudo;     /* sum of the pseudo header as the packet comes, but for the length */
	__u16 udp_change; /* what the UDP checksum's sum grows by, but for the length in ChannelData */
};

#define ROUTE_TO_V6 1   /* the family on the way out */
#define ROUTE_HAIRPIN 2 /* the peer is a relayed address of ours: another route leads on, or led here */
#define ROUTE_PROBE 4   /* the program is tried with it: it asks for no way, and nothing leaves */
#define ROUTE_HANDED 8  /* its client has a connection: the worker gets it by its ring */

#define UNLIMITED 0xffffffff

/* An entry: two cache lines. User space writes it while `generation` is 0, and nothing of it changes from then
 * on but `until` and `bucket`, each a word by itself, and what the programs write. When it is withdrawn,
 * `generation` is 0 again, and the entry rests for seconds before another direction gets it. The entries of a flow
 * are neighbours: to its peer an even one, to its client the next.
 *
 * What is behind the generation is evidence: what the system itself did with packets of the direction. By it the
 * program knows that the host's own rules let them through, unaltered and by this way. */
struct entry {
	struct route route;
	struct route_key key;
	__u32 generation;
	__u32 rises;  /* packets are left to the stack: as struct rising says */
	__u64 proven; /* of CLOCK_MONOTONIC: when one last left by the stack, or came to its worker, if
		       * handed; 0: never */
	__u64 way;    /* by which interface it left, and to whose link-layer address: way_of */
};

/* Of an entry, what is of use only while packets of its direction are left to the stack. Times are of
 * CLOCK_MONOTONIC in nanoseconds. Processors that write at the same time may cost a packet the long way, or a
 * place in the order. */
struct rising {
	__u64 began; /* when the first was left to the stack, of those that were in a row */
	__u64 rose;  /* when the last of them was */
	__u64 risen; /* how many there were */
	__u64 again; /* when it is tried to renew the proof, after it was in vain */
};

/* Behind a packet that was left to the stack the next ones follow, until one of its direction was proven
 * after the last of them, and there was a pause. */
#define PAUSE 250000ull /* nanoseconds */
#define RISEN_MANY 16 /* so many do without a pause, */
#define RISEN_MOST 256 /* so many without a proof, */
#define RISEN_LONG 50000000ull /* or so many nanoseconds: then packets may overtake each other, */
#define AGAIN 250000000ull /* and so many nanoseconds later it is tried again */

/* A peer's datagram in the ring of a worker, in front of its payload. */
struct handed {
	__u64 ticket;
	__u16 len;    /* bytes of payload; behind them is what was there before */
	__be16 check; /* of UDP, as it came; 0: none. User space sees whether it is right */
	__u8 ttl;
	__u8 tos;
	__u8 zero[2];
};

/* Bytes of payload that are set aside: what does not fit the last one is for the sockets. */
#define HANDED_SMALL 256
#define HANDED_MIDDLE 768
#define HANDED_MAX 1504

/* What one processor counts of a flow, which is the channel of a client in both directions. */
struct cell {
	__u64 to_peer_packets;
	__u64 to_peer_bytes; /* of payload */
	__u64 to_client_packets;
	__u64 to_client_bytes;
	__u64 to_peer_over; /* packets beyond the bandwidth */
	__u64 to_client_over;
	__u64 seen;          /* when the last packet came */
	/* When some last came merged, in GRAINs of time; 0: never. They come round every nine minutes. */
	__u16 to_peer_merged;
	__u16 to_client_merged;
	__u32 zero;
};

/* What limits the traffic of an allocation. A packet that meets the old cost and the new window is limited by
 * either. */
struct bucket {
	__u64 to_peer;   /* when what was let through so far would be through at the rate of the limit */
	__u64 to_client;
	__u64 cost;      /* nanoseconds of the bucket for 65,536 bytes; 0: as much as comes */
	__u64 window;    /* how many nanoseconds of traffic the bucket holds */
};

/* Ports that may be ours, a bit each: others are not looked at further. */
struct doors {
	__u8 listener[8192];
	__u8 relay[8192];
};

/* An interface of ours. */
struct link {
	__u8 mac[6];
	__u8 leave; /* packets may leave by it: LEAVE_ bits */
	__u8 known; /* 0: it is none of ours */
};

#define LEAVE_XDP 1 /* that came by XDP */
#define LEAVE_TC 2

#define WORKERS_MAX 256
#define GRAIN_BITS 23 /* of nanoseconds: about eight milliseconds */

/* Behind merged packets, which sockets take, the others of that direction stay with the sockets for so
 * many GRAINs (8 to 16 ms): they may not overtake what the sockets still have. It is not until there is a
 * pause: where sockets cannot follow, packets wait, and what waits is merged, so that ever more would be
 * left to the sockets. */
#define STAY_GRAINS 2

/* Why a packet of a known route was left to user space. */
enum pass {
	PASS_EXPIRED,      /* the route has run out, or its worker does not answer */
	PASS_SHOWN,        /* now and then one shows that the system's rules still let its direction through */
	PASS_TTL,          /* it would run out here */
	PASS_CHECKSUM,     /* it has none, and IPv6 wants one */
	PASS_HAIRPIN,      /* there is no route at the other allocation */
	PASS_NO_ROUTE,     /* the system knows no way, or will not forward */
	PASS_NO_NEIGHBOUR, /* it does not know the next hop's address yet */
	PASS_TOO_LONG,     /* for the link, with its header */
	PASS_LINK,         /* the way out is by a link that packets cannot leave by from here */
	PASS_MERGED,       /* the system merged several packets */
	PASS_ROOM,         /* there is no room for headers */
	PASS_RING,         /* there is no room in the worker's ring, or it has none */
	PASS_STALE,        /* its route was withdrawn while the program read it */
	PASS_PROCESSOR,    /* this processor came into use later than the program: it has no cells */
	PASS_UNPROVEN,     /* no packet of its direction has come through the system's stack of late */
	PASS_MOVED,        /* those that did left by another way than the program would take */
	OVERTAKEN,         /* is none: one was carried while others may still have been in the stack */
	PASSES,
};
