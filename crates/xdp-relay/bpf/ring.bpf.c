/* The ring of one worker, created once for each. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";
