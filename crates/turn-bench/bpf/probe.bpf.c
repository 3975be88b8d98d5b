/* Sends a frame as it is: whether frames leave by a link at all. */
#include "frame.h"

/* Where frames leave. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} interfaces SEC(".maps");

SEC("xdp")
int probe(struct xdp_md *ctx)
{
	__u32 zero = 0;
	__u32 *interface = bpf_map_lookup_elem(&interfaces, &zero);
	if (!interface)
		return XDP_ABORTED;
	return bpf_redirect(*interface, 0);
}

/* See port.bpf.c. */
char _license[] SEC("license") = "Dual MIT/GPL";
