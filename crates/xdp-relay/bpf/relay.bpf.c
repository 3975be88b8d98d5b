/* Relays ChannelData of bound channels: client -> peer without its header, peer -> client with it.
 *
 * User space installs the routes (`routes`) and is authoritative: packets without a valid route pass to it unchanged.
 * One program for the native and the generic hook of XDP, one for tc; the steps are in relay.h. */
#include "relay.h"

SEC("xdp")
int relay_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet packet = {};
	struct plan plan;

	/* Step 1: a whole UDP datagram. */
	struct udphdr *udp = find_datagram(data, end, end - data, &packet);
	if (!udp)
		return XDP_PASS;

	/* Step 2: a route, and a frame for this host: a switch may flood frames for others. */
	struct route *route = &plan.route;
	struct found found = find_route(udp, end, &packet, route);
	if (!found.entry)
		return XDP_PASS;
	__u32 ingress = ctx->ingress_ifindex;
	struct link *link = bpf_map_lookup_elem(&links, &ingress);
	if (!link || !link->known || mac_of(link->mac) != mac_of(data))
		return XDP_PASS;
	if (looks_partial(&packet, route)) {
		if (!(link->known & LINK_PARTIAL)) {
			passed(PASS_CHECKSUM);
			return XDP_PASS;
		}
		packet.partial = 1;
	}
	if (route->flags & ROUTE_TO_RING)
		return deliver_to_ring(ctx, 0, &packet, found, route) ? XDP_PASS : XDP_DROP;

	/* Step 3: the plan. */
	int self_test = is_self_test(ingress, route);
	if (packet.partial && add_up_payload(udp, end, &packet)) {
		passed(PASS_CHECKSUM);
		return XDP_PASS;
	}
	if (make_plan(&packet, found, &plan, 0)) {
		if (is_evidence(&packet, &plan))
			remember_xdp(ctx, &plan.entering);
		return XDP_PASS;
	}

	/* Steps 4 and 5: the next hop, as the stack would choose it. */
	prepare_lookup(ingress, &plan);
	if (!self_test &&
	    check_lookup(bpf_fib_lookup(ctx, &plan.fib, sizeof(plan.fib), 0), &plan, LEAVE_XDP)) {
		if (is_evidence(&packet, &plan))
			remember_xdp(ctx, &plan.entering);
		return XDP_PASS;
	}

	/* Step 6: headroom, then the bandwidth limit. */
	if (bpf_xdp_adjust_head(ctx, -plan.grows)) {
		passed(PASS_ROOM);
		return XDP_PASS;
	}
	if (!charge(&plan))
		return XDP_DROP;
	if (packet.partial)
		passed(PARTIAL);

	/* Step 7: the headers. */
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (!write_headers(data, end, &plan))
		return XDP_DROP;
	return self_test ? XDP_TX : bpf_redirect(plan.fib.ifindex, 0);
}

/* To the next program, then to the stack. */
#define NEXT -1
#define DROP 2 /* TC_ACT_SHOT */
#define TRIED 3 /* TC_ACT_PIPE, otherwise unused here */

SEC("classifier")
int relay_tc(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct packet packet = {};
	struct plan plan;

	/* Step 1: a whole UDP datagram, for this host; its headers may not be contiguous yet. */
	if (skb->pkt_type || skb->vlan_present)
		return NEXT;
	if (data + HEADERS_MAX > end) {
		__u32 len = skb->len < HEADERS_MAX ? skb->len : HEADERS_MAX;
		if (bpf_skb_pull_data(skb, len))
			return NEXT;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
	struct udphdr *udp = find_datagram(data, end, skb->len, &packet);
	if (!udp)
		return NEXT;

	/* Step 2: a route. Merged datagrams have the headers of the first alone. */
	struct route *route = &plan.route;
	if (skb->gso_segs > 1 || skb->gso_size)
		return pass_merged(skb, udp->dest, &packet, route);
	struct found found = find_route(udp, end, &packet, route);
	if (!found.entry)
		return NEXT;
	if (looks_partial(&packet, route)) {
		int partial = packet.payload < FRAME_MAX ? is_partial(skb, &packet) : -1;
		if (partial < 0) {
			passed(PASS_CHECKSUM);
			return NEXT;
		}
		packet.partial = partial;
	}
	if (route->flags & ROUTE_TO_RING)
		return deliver_to_ring(skb, 1, &packet, found, route) ? NEXT : DROP;

	/* Step 3: the plan. */
	int self_test = is_self_test(skb->ifindex, route);
	if (make_plan(&packet, found, &plan, 1)) {
		if (is_evidence(&packet, &plan))
			remember_tc(skb, &plan.entering);
		return NEXT;
	}

	/* Steps 4 and 5: the next hop, as the stack would choose it. */
	prepare_lookup(skb->ifindex, &plan);
	if (!self_test &&
	    check_lookup(bpf_fib_lookup(skb, &plan.fib, sizeof(plan.fib), 0), &plan, LEAVE_TC)) {
		if (is_evidence(&packet, &plan))
			remember_tc(skb, &plan.entering);
		return NEXT;
	}

	/* Step 6: the bandwidth limit, then headroom. */
	if (!charge(&plan))
		return DROP;
	if (packet.partial) {
		passed(PARTIAL);
		__u32 at = payload_at(&packet);
		__u32 from = at + (channel_of(&packet.key) ? CHANNEL_HEADER : 0);
		__u32 to = at + (route->channel ? CHANNEL_HEADER : 0);
		if (move_payload(skb, from, to, plan.payload))
			return DROP;
	}
	int to_v6 = leaves_by_v6(route);
	__be16 protocol = bpf_htons(to_v6 ? ETH_P_IPV6 : ETH_P_IP);
	if (packet.v6 != to_v6 && bpf_skb_change_proto(skb, protocol, 0))
		return DROP;
	if (plan.data_grows && !packet.partial &&
	    bpf_skb_adjust_room(skb, plan.data_grows, BPF_ADJ_ROOM_MAC, 0))
		return DROP;

	/* Step 7: the headers. */
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (!write_headers(data, end, &plan))
		return DROP;
	return self_test ? TRIED : bpf_redirect(plan.fib.ifindex, 0);
}

/* Records that datagrams of the direction to a peer leave. */
static __always_inline void leave_to_peer(struct __sk_buff *skb, const struct route_key *key,
					  struct leaving *leaving, __u32 segments)
{
	struct punt_state *state = find_direction(key, leaving);
	if (!state)
		return;
	int is_new = 0;
	if (awaits(state)) {
		for (__u32 i = 0; i < SEGMENTS_MAX; i++) {
			if (i >= segments || leaving->at >= skb->len)
				break;
			if (segments > 1)
				leaving->len = skb->len - leaving->at;
			if (segments > 1 && leaving->len > skb->gso_size)
				leaving->len = skb->gso_size;
			is_new |= compare(skb, leaving);
			leaving->at += skb->gso_size;
		}
	}
	note_all(state, leaving->index, is_new, segments);
}

/* Records that ChannelData leaves for a client, of several channels perhaps. */
static __always_inline void leave_to_client(struct __sk_buff *skb, struct route_key *key,
					    struct leaving *leaving, __u32 segments)
{
	__u32 at = leaving->at;
	__be16 channel = 0;
	struct punt_state *state = 0;
	for (__u32 i = 0; i < SEGMENTS_MAX; i++) {
		__be16 header[2];
		if (i >= segments || bpf_skb_load_bytes(skb, at, header, sizeof(header)))
			return;
		if (header[0] != channel) {
			channel = header[0];
			key->ends = with_channel(key->ends, channel);
			state = is_channel(bpf_ntohs(channel)) ? find_direction(key, leaving) : 0;
		}
		if (state) {
			leaving->at = at + CHANNEL_HEADER;
			leaving->len = bpf_ntohs(header[1]);
			int is_new = awaits(state) ? compare(skb, leaving) : 0;
			note_all(state, leaving->index, is_new, 1);
		}
		at += skb->gso_size;
	}
}

/* Sees packets that this host itself sends leave: evidence of how the stack treats their direction. */
SEC("classifier")
int tap(struct __sk_buff *skb)
{
	/* Redirected and forwarded packets have an inbound interface. */
	if (skb->ingress_ifindex || skb->vlan_present || skb->ifindex > 0xffff)
		return NEXT;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct route_key key = {};
	struct leaving leaving = {};
	struct udphdr *udp = find_leaving(data, end, &key, &leaving);
	if (!udp)
		return NEXT;
	__u32 only = 0;
	struct port_filter *filter = bpf_map_lookup_elem(&port_filter, &only);
	if (!filter)
		return NEXT;
	struct ethhdr *eth = data;
	leaving.next_hop = next_hop_of(skb->ifindex, eth->h_dest);
	leaving.at = (void *)(udp + 1) - data;
	leaving.len = bpf_ntohs(udp->len) - sizeof(*udp);
	__u32 at = leaving.at, segments = segments_of(skb, at);
	int to_peer = is_open(filter->relay, udp->source);
	int to_client = is_open(filter->listener, udp->source);
	if (to_peer)
		leave_to_peer(skb, &key, &leaving, segments);
	leaving.at = at;
	if (to_client)
		leave_to_client(skb, &key, &leaving, segments);
	return NEXT;
}

/* Redirected frames of XDP that did not leave, of this program and of others. The target is not known without the
 * kernel's own types. */
static __always_inline int lost(__s32 frames)
{
	__u32 only = 0;
	__u64 *count = bpf_map_lookup_elem(&redirects_lost, &only);
	if (count && frames > 0)
		*count += frames;
	return 0;
}

/* Arguments: source device, target device, frames sent, frames dropped, error. */
SEC("raw_tp/xdp_devmap_xmit")
int lost_at_device(struct bpf_raw_tracepoint_args *ctx)
{
	return lost(ctx->args[3]);
}

SEC("raw_tp/xdp_redirect_err")
int lost_before(struct bpf_raw_tracepoint_args *ctx)
{
	return lost(1);
}

/* bpf_fib_lookup requires the GPL; this program is under the MIT licence as well. */
char _license[] SEC("license") = "Dual MIT/GPL";
