/* One end of the traffic on a link: counts what arrives, and makes what is sent.
 *
 * Both are one program, because only one can be on a link, and because BPF_PROG_TEST_RUN is quick only
 * for a program that is on some link: for another the kernel waits, at each call, until all CPUs know
 * that it may run, which takes milliseconds. */
#include "sink.h"
#include "source.h"

/* The loopback has this number in every network namespace. Frames of BPF_PROG_TEST_RUN come by it;
 * this program is never put on it. */
#define LOOPBACK 1

SEC("xdp")
int port(struct xdp_md *ctx)
{
	if (ctx->ingress_ifindex == LOOPBACK && ctx->data_meta < ctx->data)
		return make_frame(ctx);
	return count_packet(ctx);
}

/* The helpers used are free to all; the kernel's list of those for GPL programs alone is not what
 * it was in every release, and this text keeps the program loadable on each. */
char _license[] SEC("license") = "Dual MIT/GPL";
