/* A datagram as the programs see it. */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "routes.h"

#define CHANNEL_HEADER 4
#define CHANNEL_MIN 0x4000
#define CHANNEL_MAX 0x7fff /* of RFC 5766; an unbound number has no route */
#define IP_FLAG_DF 0x4000
#define IP_FRAGMENT 0x3fff /* more fragments, or not the first */
#define IPV4_LEN ((__s32)sizeof(struct iphdr))
#define IPV6_LEN ((__s32)sizeof(struct ipv6hdr))
#define HEADERS_MAX (ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct udphdr) + CHANNEL_HEADER)
#define FRAME_MAX 4096 /* longest frame in one buffer */
#define LOOPBACK 1
#define AF_INET 2
#define AF_INET6 10

/* A received datagram. */
struct packet {
	struct route_key key;
	__u16 payload; /* bytes after the UDP header */
	__u16 padding; /* of these at the end of ChannelData */
	__be16 check;
	__u8 partial; /* the checksum is partial */
	__u8 v6;
	__u8 tos;
	__u8 ttl;
	__u32 sum; /* of the payload that is relayed; for XDP, if the checksum is partial */
};

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}
