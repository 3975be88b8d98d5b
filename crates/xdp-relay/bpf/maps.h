/* Constants and maps of the programs. */
#pragma once

#include "packet.h"

/* Set by the loader. */
const volatile __u32 processors = 1;   /* cells of a flow: for the processors below this number */
const volatile __u32 look_up_from = 0; /* interface that next hops are looked up from; 0: the inbound one */
const volatile __u64 proof_holds = 0;  /* nanoseconds; 0: no proof is required, for tests */
const volatile __u64 renew_every = 0;  /* nanoseconds between packets that renew a proof */
const volatile __u32 can_fill_rings = 0;   /* the kernel supports rings */
const volatile __u32 id_seed = 0;      /* secret start of IPv4 identifications */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2);
	__type(key, struct route_key);
	__type(value, struct entry_ref);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct entry);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32); /* an entry */
	__type(value, struct punt_state);
} punt_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32); /* flow * processors + processor */
	__type(value, struct cell);
} cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct port_filter);
} port_filter SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WORKERS_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32); /* a worker */
	__type(value, __u64); /* expiry of its routes */
} leases SEC(".maps");

/* An array: found without a call, where a hash costs as much as the look-up of the route. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32); /* an interface */
	__type(value, struct link);
} links SEC(".maps");

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, WORKERS_MAX);
	__type(key, __u32); /* a worker */
	__array(values, struct ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PASSES);
	__type(key, __u32);
	__type(value, __u64);
} passes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} redirects_lost SEC(".maps");

/* The entry of a packet. */
struct found {
	struct entry *entry; /* 0: none */
	__u64 index; /* a whole word: the compiler would write the pointer and half a word at once */
};

static __always_inline int passed(__u32 why)
{
	__u64 *count = bpf_map_lookup_elem(&passes, &why);
	if (count)
		*count += 1;
	return -1;
}
