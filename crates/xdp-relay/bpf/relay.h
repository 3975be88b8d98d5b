/* Steps of both programs. */
#pragma once

#include "evidence.h"
#include "partial.h"

/* Bandwidth limit of an allocation in one direction. */
struct limit {
	__u32 bucket;
	__u32 headers; /* bytes of IP and UDP that each packet is charged besides its payload */
};

/* Its forwarding. */
struct plan {
	struct route route; /* copy of the outbound route */
	struct cell *cell;
	/* Of the inbound route, if the peer is a relayed address of this host. */
	struct cell *first_cell;
	struct limit first_limit;
	struct found proof; /* entry of the outbound route, unless it is the self-test's */
	struct entering entering;
	struct bpf_fib_lookup fib;
	__u64 now;
	__s32 grows; /* change of the length in bytes */
	__s32 data_grows; /* of these after the UDP header */
	__u16 payload;
	__u16 check;
	__u16 id; /* of IPv4 */
	__u8 ttl;
	__u8 tos;
};

static __always_inline __u16 sum_of_v4(struct iphdr *ip)
{
	__u32 *words = (void *)ip;
	__u64 sum = (__u64)words[0] + words[1] + words[2] + words[3] + words[4];
	sum = (sum & 0xffffffff) + (sum >> 32);
	return fold((sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32));
}

static __always_inline void set_v4(__u64 *address, __u32 v4)
{
	address[0] = 0;
	address[1] = (__u64)v4 << 32 | bpf_htonl(0xffff);
}

static __always_inline void set_v6(__u64 *address, const struct in6_addr *v6)
{
	const __u32 *words = (void *)v6;
	address[0] = (__u64)words[1] << 32 | words[0];
	address[1] = (__u64)words[3] << 32 | words[2];
}

static __always_inline int is_v4(const __u64 *address)
{
	return !address[0] && (__u32)address[1] == bpf_htonl(0xffff);
}

static __always_inline int is_open(const __u8 *bits, __be16 port)
{
	__u16 number = bpf_ntohs(port);
	return bits[number >> 3] >> (number & 7) & 1;
}

/* Step 1: a whole UDP datagram over IPv4 or IPv6, without options, in a frame that may be longer.
 * Its headers are below `end`. */
static __always_inline struct udphdr *find_datagram(void *data, void *end, __u32 frame_len,
						    struct packet *packet)
{
	struct ethhdr *eth = data;
	if ((void *)(eth + 1) > end)
		return 0;
	struct udphdr *udp;
	__u16 udp_len;
	__u32 before; /* bytes before the UDP header */
	__be16 protocol = *(__be16 *)(data + 2 * ETH_ALEN);
	if (protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);
		if ((void *)(ip + 1) > end || *(__u8 *)ip != 0x45 || ip->protocol != IPPROTO_UDP ||
		    ip->frag_off & bpf_htons(IP_FRAGMENT))
			return 0;
		/* A damaged header must not get a valid checksum. */
		if (sum_of_v4(ip) != 0xffff)
			return 0;
		udp_len = bpf_ntohs(ip->tot_len) - sizeof(*ip);
		before = ETH_HLEN + sizeof(*ip);
		udp = (void *)(ip + 1);
		set_v4(packet->key.remote, ip->saddr);
		set_v4(packet->key.local, ip->daddr);
		packet->v6 = 0;
		packet->tos = ip->tos;
		packet->ttl = ip->ttl;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(eth + 1);
		if ((void *)(ip + 1) > end || *(__u8 *)ip >> 4 != 6 || ip->nexthdr != IPPROTO_UDP)
			return 0;
		udp_len = bpf_ntohs(ip->payload_len);
		before = ETH_HLEN + sizeof(*ip);
		udp = (void *)(ip + 1);
		set_v6(packet->key.remote, &ip->saddr);
		set_v6(packet->key.local, &ip->daddr);
		/* Not valid on the wire (RFC 4291 section 2.5.5.2): it would match the routes of IPv4. */
		if (is_v4(packet->key.local))
			return 0;
		packet->v6 = 1;
		packet->tos = bpf_ntohs(*(__be16 *)ip) >> 4;
		packet->ttl = ip->hop_limit;
	} else {
		return 0;
	}
	if ((void *)(udp + 1) > end || bpf_ntohs(udp->len) != udp_len || udp_len < sizeof(*udp) ||
	    before + udp_len > frame_len)
		return 0;
	packet->key.ends = ends_of(udp->source, udp->dest);
	packet->check = udp->check;
	packet->payload = udp_len - sizeof(*udp);
	return udp;
}

/* ChannelData may be padded to four bytes over UDP as well (RFC 8656 §12.5), and some clients do. Accepts the exact
 * length, or padding of zeros, which leaves the checksum's sum unchanged. The padding need not be cut off: a frame may
 * be longer than its datagram. */
static __always_inline int is_whole(__be16 *header, void *end, struct packet *packet)
{
	__u16 data_len = bpf_ntohs(header[1]);
	if (data_len > packet->payload - CHANNEL_HEADER)
		return 0;
	__u16 padding = packet->payload - CHANNEL_HEADER - data_len;
	packet->padding = padding;
	if (!padding)
		return 1;
	/* The bound for the verifier. */
	if (padding > 3 || data_len > FRAME_MAX)
		return 0;
	__u8 *byte = (void *)(header + 2) + data_len;
	for (int i = 0; i < 3; i++)
		if (i < padding && ((void *)(byte + i + 1) > end || byte[i]))
			return 0;
	return 1;
}

/* Step 2: the route: ChannelData at a listener port, or a peer's datagram at a relayed port. */
static __always_inline struct found find_route(struct udphdr *udp, void *end, struct packet *packet,
					       struct route *route)
{
	struct found found = {};
	__u32 only = 0;
	struct port_filter *filter = bpf_map_lookup_elem(&port_filter, &only);
	if (!filter)
		return found;
	__be16 *header = (void *)(udp + 1);
	__be16 local_port = udp->dest;
	if (is_open(filter->listener, local_port) && packet->payload >= CHANNEL_HEADER &&
	    (void *)(header + 2) <= end) {
		__u16 channel = bpf_ntohs(header[0]);
		if (is_channel(channel) && is_whole(header, end, packet)) {
			packet->key.ends = with_channel(packet->key.ends, header[0]);
			found = read_route(&packet->key, route);
			if (found.entry)
				return found;
		}
	}
	if (!is_open(filter->relay, local_port))
		return found;
	packet->key.ends = with_channel(packet->key.ends, 0);
	packet->padding = 0;
	return read_route(&packet->key, route);
}

/* Leaves merged datagrams to the stack, which the next ones of their directions follow. Those of a client may be of
 * several channels. */
static __always_inline int pass_merged(struct __sk_buff *skb, __be16 local_port, struct packet *packet,
				       struct route *route)
{
	__u32 only = 0;
	struct port_filter *filter = bpf_map_lookup_elem(&port_filter, &only);
	if (!filter)
		return -1;
	struct route_key *key = &packet->key;
	__u64 now = bpf_ktime_get_coarse_ns();
	__u32 at = payload_at(packet);
	__u32 segments = segments_of(skb, at);
	int has_route = 0;
	if (is_open(filter->relay, local_port)) {
		key->ends = with_channel(key->ends, 0);
		has_route = enter_run(key, route, now, segments);
	}
	if (is_open(filter->listener, local_port)) {
		/* A run of one channel is recorded at its end: pointers that are kept from one turn to the next would
		 * multiply the verifier's work. */
		__be16 channel = 0;
		__u32 run = 0;
		for (__u32 i = 0; i <= SEGMENTS_MAX; i++) {
			__be16 next = 0;
			int is_end = i == SEGMENTS_MAX || i >= segments ||
				     bpf_skb_load_bytes(skb, at, &next, sizeof(next));
			at += skb->gso_size;
			if (!is_end && next == channel) {
				run++;
				continue;
			}
			if (is_channel(bpf_ntohs(channel))) {
				key->ends = with_channel(key->ends, channel);
				has_route |= enter_run(key, route, now, run);
			}
			if (is_end)
				break;
			channel = next;
			run = 1;
		}
	}
	return has_route ? passed(PASS_MERGED) : -1;
}

/* The route is valid now: neither it nor the lease of its worker has expired. */
static __always_inline int holds(struct route *route, __u64 now)
{
	__u32 worker = route->worker;
	__u64 *lease = bpf_map_lookup_elem(&leases, &worker);
	return lease && now < *lease && now < route->until;
}

/* Counters of this processor; 0: none. */
static __always_inline struct cell *cell_of(struct route *route)
{
	__u32 processor = bpf_get_smp_processor_id();
	if (processor >= processors)
		return 0;
	__u32 index = route->flow * processors + processor;
	return bpf_map_lookup_elem(&cells, &index);
}

/* Takes a packet with so many bytes of payload from the bucket; 0: over the limit. Concurrent takes of two processors
 * both count. */
static __always_inline int within_bandwidth(const struct limit *limit, int to_client, __u64 now,
					    __u32 bytes)
{
	__u32 index = limit->bucket;
	if (index == UNLIMITED)
		return 1;
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &index);
	if (!bucket || !bucket->cost)
		return 1;
	__u64 *full = to_client ? &bucket->to_client : &bucket->to_peer;
	__u64 cost = (bucket->cost * (bytes + limit->headers)) >> 16;
	__u64 before = *full;
	__u64 from = before > now ? before : now;
	if (from + cost - now > bucket->window)
		return 0;
	if (__sync_val_compare_and_swap(full, before, from + cost) != before)
		__sync_fetch_and_add(full, cost);
	return 1;
}

static __always_inline void count_over(struct cell *cell, int to_client)
{
	if (to_client)
		cell->to_client_over += 1;
	else
		cell->to_peer_over += 1;
}

/* Returns the packets of the direction counted by this processor. */
static __always_inline __u64 count(struct cell *cell, int to_client, __u64 now, __u32 bytes)
{
	cell->seen = now;
	if (to_client) {
		cell->to_client_bytes += bytes;
		return cell->to_client_packets += 1;
	}
	cell->to_peer_bytes += bytes;
	return cell->to_peer_packets += 1;
}

static __always_inline int leaves_by_v6(const struct route *route)
{
	return route->flags & ROUTE_TO_V6;
}

static __always_inline struct limit limit_of(struct route *route)
{
	__u32 headers = (leaves_by_v6(route) ? IPV6_LEN : IPV4_LEN) + sizeof(struct udphdr);
	return (struct limit){ route->bucket, headers };
}

/* Sums up the payload that is relayed. Negative: too long. */
static __always_inline int add_up_payload(struct udphdr *udp, void *end, struct packet *packet)
{
	__u32 takes_off = channel_of(&packet->key) ? CHANNEL_HEADER : 0;
	void *start = (void *)(udp + 1) + takes_off;
	__s64 sum = sum_of_payload(start, end, packet->payload - takes_off - packet->padding);
	packet->sum = sum;
	return sum < 0 ? -1 : 0;
}

/* Step 3: decides if the packet takes its route now, and plans the changes; the packet stays unchanged. Negative: pass
 * to user space. */
static __always_inline int make_plan(struct packet *packet, struct found found, struct plan *plan,
				     int tc)
{
	struct route *route = &plan->route;
	int in_order = !(route->flags & ROUTE_SELF_TEST);
	__u64 now = bpf_ktime_get_coarse_ns();
	plan->entering.places[0] = 0;
	plan->entering.places[1] = 0;
	if (!holds(route, now))
		return pass_in_order(found, now, PASS_EXPIRED);
	plan->cell = cell_of(route);
	if (!plan->cell)
		return passed(PASS_PROCESSOR);
	if (packet->ttl <= 1)
		return passed(PASS_TTL);
	plan->now = now;
	plan->first_cell = 0;
	plan->proof = (struct found){};
	plan->ttl = packet->ttl - 1;
	plan->tos = packet->tos;

	/* A client's data without the ChannelData header, or a peer's whole datagram. */
	__s32 takes_off = channel_of(&packet->key) ? CHANNEL_HEADER : 0;
	plan->payload = packet->payload - takes_off - packet->padding;
	/* The checksum's sum grows by the added words, and by the complement of the removed ones (RFC 1624). */
	__be16 len = bpf_htons(plan->payload);
	__u32 grows = route->udp_change + (takes_off ? (__u16)~len : len);
	/* The padding leaves two lengths: of the datagram and in the pseudo header. */
	if (packet->padding)
		grows += (__u16)~bpf_htons(2 * packet->padding);

	/* Continues with the route of the other allocation. A packet from outside with a local source address
	 * is forged. */
	if (route->flags & ROUTE_HAIRPIN && route->channel)
		return passed(PASS_HAIRPIN);
	if (route->flags & ROUTE_HAIRPIN) {
		struct route_key key = {};
		__builtin_memcpy(key.remote, route->source, sizeof(key.remote));
		__builtin_memcpy(key.local, route->destination, sizeof(key.local));
		key.ends = ends_of(route->source_port, route->destination_port);
		plan->first_cell = plan->cell;
		plan->first_limit = limit_of(route);
		struct found last = read_route(&key, route);
		if (!last.entry || !route->channel || !holds(route, now))
			return passed(PASS_HAIRPIN);
		plan->cell = cell_of(route);
		if (!plan->cell)
			return passed(PASS_PROCESSOR);
		/* Each of the two relays is a hop. */
		if (plan->ttl <= 1)
			return passed(PASS_TTL);
		plan->ttl -= 1;
		grows += route->udp_change + len;
		/* It passes the stack twice. */
		if (in_order) {
			int punts = must_punt(found, now) | must_punt(last, now);
			if (punts || (proof_holds && found.entry->next_hop >> 48 != LOOPBACK)) {
				plan->entering.places[0] = found.index + 1;
				plan->entering.places[1] = last.index + 1;
				struct punt_state *first = enter(found, now, PASS_RENEWAL);
				struct punt_state *second = enter(last, now, PASS_RENEWAL);
				if (first && second)
					return passed(second->why);
				pass_unproven(first ? last.index : found.index);
				return -1;
			}
			plan->proof = last;
		}
	} else if (in_order) {
		if (must_punt(found, now)) {
			plan->entering.places[1] = found.index + 1;
			return punt(found, now, PASS_RENEWAL);
		}
		plan->proof = found;
	}

	/* IPv6 requires a checksum, IPv4 does not. */
	if (packet->partial) {
		plan->check = tc ? partial_check(route, plan->payload) :
				   complete_check(route, plan->payload, packet->sum);
	} else if (packet->check) {
		__u16 check = ~fold((__u16)~packet->check + grows);
		plan->check = check ? check : 0xffff;
	} else if (leaves_by_v6(route) || packet->v6) {
		return passed(PASS_CHECKSUM);
	} else {
		plan->check = 0;
	}

	plan->data_grows = (route->channel ? CHANNEL_HEADER : 0) - takes_off;
	plan->grows = plan->data_grows + (leaves_by_v6(route) ? IPV6_LEN : IPV4_LEN) -
		      (packet->v6 ? IPV6_LEN : IPV4_LEN);
	return 0;
}

/* Completes the record of a packet that passes to the stack. 0: it is no evidence. */
static __always_inline int is_evidence(struct packet *packet, struct plan *plan)
{
	struct entering *entering = &plan->entering;
	if (!(entering->places[0] | entering->places[1]))
		return 0;
	entering->at = payload_at(packet) + (channel_of(&packet->key) ? CHANNEL_HEADER : 0);
	entering->len = plan->payload;
	entering->fields[0] = fields_of(packet->tos, packet->ttl - 1);
	entering->fields[1] = fields_of(packet->tos, plan->ttl);
	entering->zero = 0;
	return 1;
}

/* Decides if a peer's datagram may be delivered to the ring: the worker treats it as received by the relay socket.
 * Negative: pass to the socket. */
static __always_inline int may_deliver(struct packet *packet, struct found found,
					 struct route *route, __u64 now)
{
	if (!holds(route, now))
		return pass_in_order(found, now, PASS_EXPIRED);
	struct cell *cell = cell_of(route);
	if (!cell)
		return passed(PASS_PROCESSOR);
	/* User space verifies it, unless it is partial; IPv6 requires one. */
	if (!packet->check && packet->v6)
		return passed(PASS_CHECKSUM);
	if (!(route->flags & ROUTE_SELF_TEST) && must_punt(found, now))
		return punt(found, now, PASS_RENEWAL);
	return 0;
}

/* Copies the payload: each hook has its own helper. */
static __always_inline long copy(void *ctx, int tc, __u32 at, void *to, __u32 len)
{
	return tc ? bpf_skb_load_bytes(ctx, at, to, len) : bpf_xdp_load_bytes(ctx, at, to, len);
}

static __always_inline int fill_ring(void *ring, void *ctx, int tc, struct packet *packet,
				  struct found found, struct route *route, const __u32 room)
{
	/* The bounds for the verifier: before Linux 6.8 it does not learn from a comparison with 0 that the length is
	 * not 0. */
	__u32 before_last = packet->payload - 1;
	asm volatile("" : "+r"(before_last));
	if (before_last >= room)
		return passed(PASS_TOO_LONG);
	__u32 len = before_last + 1;
	struct ring_datagram *datagram = bpf_ringbuf_reserve(ring, sizeof(*datagram) + room, 0);
	if (!datagram)
		return pass_in_order(found, bpf_ktime_get_coarse_ns(), PASS_RING);
	datagram->flow_cookie = route->flow_cookie;
	datagram->len = len;
	datagram->check = packet->check;
	datagram->ttl = packet->ttl;
	datagram->tos = packet->tos;
	datagram->partial = packet->partial;
	if (copy(ctx, tc, payload_at(packet), datagram + 1, len)) {
		bpf_ringbuf_discard(datagram, BPF_RB_NO_WAKEUP);
		return passed(PASS_TOO_LONG);
	}
	bpf_ringbuf_submit(datagram, 0);
	if (packet->partial)
		passed(PARTIAL);
	return 0;
}

/* Delivers a peer's datagram to the ring of the worker of its client's connection. Negative: pass to the socket. */
static __always_inline int deliver_to_ring(void *ctx, int tc, struct packet *packet, struct found found,
				     struct route *route)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	if (!can_fill_rings || may_deliver(packet, found, route, now))
		return -1;
	__u32 worker = route->worker;
	void *ring = bpf_map_lookup_elem(&rings, &worker);
	if (!ring)
		return passed(PASS_RING);
	if (packet->payload <= RING_SMALL)
		return fill_ring(ring, ctx, tc, packet, found, route, RING_SMALL);
	if (packet->payload <= RING_MIDDLE)
		return fill_ring(ring, ctx, tc, packet, found, route, RING_MIDDLE);
	return fill_ring(ring, ctx, tc, packet, found, route, RING_MAX);
}

/* Frames of the self-test come by the loopback, where the program is never attached. */
static __always_inline int is_self_test(__u32 ingress, struct route *route)
{
	return route->flags & ROUTE_SELF_TEST && ingress == LOOPBACK;
}

/* The key of the reverse direction of an outbound UDP datagram, or of several to be segmented, and its headers. */
static __always_inline struct udphdr *find_leaving(void *data, void *end, struct route_key *key,
						   struct leaving *leaving)
{
	struct ethhdr *eth = data;
	if ((void *)(eth + 1) > end)
		return 0;
	struct udphdr *udp;
	__be16 protocol = *(__be16 *)(data + 2 * ETH_ALEN);
	if (protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);
		if ((void *)(ip + 1) > end || *(__u8 *)ip != 0x45 || ip->protocol != IPPROTO_UDP ||
		    ip->frag_off & bpf_htons(IP_FRAGMENT))
			return 0;
		udp = (void *)(ip + 1);
		set_v4(key->remote, ip->daddr);
		set_v4(key->local, ip->saddr);
		leaving->fields = fields_of(ip->tos, ip->ttl);
		/* The server does not set DF in data of channels. */
		leaving->odd = ip->frag_off != 0;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(eth + 1);
		if ((void *)(ip + 1) > end || ip->nexthdr != IPPROTO_UDP)
			return 0;
		udp = (void *)(ip + 1);
		set_v6(key->remote, &ip->daddr);
		set_v6(key->local, &ip->saddr);
		__u32 first = bpf_ntohl(*(__be32 *)ip);
		leaving->fields = fields_of(first >> 20, ip->hop_limit);
		leaving->label = first & 0xfffff;
		leaving->v6 = 1;
	} else {
		return 0;
	}
	if ((void *)(udp + 1) > end)
		return 0;
	key->ends = ends_of(udp->dest, udp->source);
	return udp;
}

/* Step 4: the arguments of the look-up of the next hop. */
static __always_inline void prepare_lookup(__u32 ingress, struct plan *plan)
{
	struct bpf_fib_lookup *fib = &plan->fib;
	struct route *route = &plan->route;
	__u32 len = plan->payload + (route->channel ? CHANNEL_HEADER : 0) + sizeof(struct udphdr);
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->l4_protocol = IPPROTO_UDP;
	fib->sport = route->source_port;
	fib->dport = route->destination_port;
	fib->ifindex = look_up_from ? look_up_from : ingress;
	if (leaves_by_v6(route)) {
		fib->family = AF_INET6;
		fib->tot_len = len + IPV6_LEN;
		fib->flowinfo = bpf_htonl((__u32)plan->tos << 20);
		__builtin_memcpy(fib->ipv6_src, route->source, sizeof(fib->ipv6_src));
		__builtin_memcpy(fib->ipv6_dst, route->destination, sizeof(fib->ipv6_dst));
	} else {
		fib->family = AF_INET;
		fib->tot_len = len + IPV4_LEN;
		fib->tos = plan->tos;
		fib->ipv4_src = route->source[3];
		fib->ipv4_dst = route->destination[3];
	}
}

/* Step 5: evaluates the result. Negative: pass to user space. */
static __always_inline int check_lookup(long answer, struct plan *plan, __u8 leave)
{
	struct found proof = plan->proof;
	if (answer == BPF_FIB_LKUP_RET_NO_NEIGH)
		return proof.entry ? pass_in_order(proof, plan->now, PASS_NO_NEIGHBOUR) :
				     passed(PASS_NO_NEIGHBOUR);
	if (answer == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return passed(PASS_TOO_LONG);
	if (answer != BPF_FIB_LKUP_RET_SUCCESS)
		return passed(PASS_NO_ROUTE);
	__u32 interface = plan->fib.ifindex;
	struct link *link = bpf_map_lookup_elem(&links, &interface);
	if (!link || !(link->leave & leave))
		return passed(PASS_LINK);
	if (proof_holds && proof.entry &&
	    proof.entry->next_hop != next_hop_of(interface, plan->fib.dmac)) {
		plan->entering.places[1] = proof.index + 1;
		return pass_in_order(proof, plan->now, PASS_MOVED);
	}
	return 0;
}

/* Step 6: applies the bandwidth limits of its allocations, and counts the packet. 0: over a limit. */
static __always_inline int charge(struct plan *plan)
{
	if (plan->first_cell) {
		if (!within_bandwidth(&plan->first_limit, 0, plan->now, plan->payload)) {
			count_over(plan->first_cell, 0);
			return 0;
		}
		count(plan->first_cell, 0, plan->now, plan->payload);
	}
	int to_client = plan->route.channel != 0;
	struct limit limit = limit_of(&plan->route);
	if (!within_bandwidth(&limit, to_client, plan->now, plan->payload)) {
		count_over(plan->cell, to_client);
		return 0;
	}
	__u64 packets = count(plan->cell, to_client, plan->now, plan->payload);
	/* Routers may fragment it, as packets of sockets, so it needs an identification of this host (RFC 6864): the
	 * received one is unique for its sender alone. Each flow has its own counter. */
	plan->id = packets + plan->route.flow * 0x9e37 + id_seed;
	return 1;
}

/* Step 7: writes the headers. 0: no room. */
static __always_inline int write_headers(void *data, void *end, struct plan *plan)
{
	struct route *route = &plan->route;
	__u32 data_len = plan->payload + (route->channel ? CHANNEL_HEADER : 0);
	__u16 udp_len = data_len + sizeof(struct udphdr);
	struct ethhdr *eth = data;
	struct udphdr *udp;
	if (leaves_by_v6(route)) {
		struct ipv6hdr *ip = (void *)(eth + 1);
		udp = (void *)(ip + 1);
		if ((void *)(udp + 1) > end)
			return 0;
		eth->h_proto = bpf_htons(ETH_P_IPV6);
		*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)plan->tos << 20 | route->flow_label);
		ip->payload_len = bpf_htons(udp_len);
		ip->nexthdr = IPPROTO_UDP;
		ip->hop_limit = plan->ttl;
		__builtin_memcpy(&ip->saddr, route->source, sizeof(ip->saddr));
		__builtin_memcpy(&ip->daddr, route->destination, sizeof(ip->daddr));
	} else {
		struct iphdr *ip = (void *)(eth + 1);
		udp = (void *)(ip + 1);
		if ((void *)(udp + 1) > end)
			return 0;
		eth->h_proto = bpf_htons(ETH_P_IP);
		*(__u8 *)ip = 0x45;
		ip->tos = plan->tos;
		ip->tot_len = bpf_htons(udp_len + IPV4_LEN);
		ip->id = bpf_htons(plan->id);
		ip->frag_off = 0;
		ip->ttl = plan->ttl;
		ip->protocol = IPPROTO_UDP;
		ip->check = 0;
		ip->saddr = route->source[3];
		ip->daddr = route->destination[3];
		ip->check = ~sum_of_v4(ip);
	}
	__builtin_memcpy(eth->h_dest, plan->fib.dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, plan->fib.smac, ETH_ALEN);
	udp->source = route->source_port;
	udp->dest = route->destination_port;
	udp->len = bpf_htons(udp_len);
	udp->check = plan->check;
	if (route->channel) {
		__be16 *header = (void *)(udp + 1);
		if ((void *)(header + 2) > end)
			return 0;
		header[0] = route->channel;
		header[1] = bpf_htons(plan->payload);
	}
	return 1;
}
