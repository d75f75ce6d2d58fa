/* What requests of other programs meet at a disk: how long they last, and whether one of this process was in flight
 * when they began. Not whether one was at any time until they ended: of the requests that last long by themselves more
 * would be, and all that is slow would seem to be slow because of this process.
 *
 * A request begins at block_io_start, which runs in the thread that submits it, also where a scheduler or the
 * plug of a thread holds it back, and ends at block_rq_complete. Counted are reads of all other processes, and writes
 * that a thread of another process submits itself (O_DIRECT, a sync); what threads of the kernel write is the file
 * system's or the page cache's, and may be for this process. A request is not counted that finds the table full, or
 * whose end the kernel does not show, because it interrupts the same program: one of this process is never taken for
 * another's.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "foreground.h"
#include "requests.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile struct foreground_config config = {};

/* From a disk's device number to its index. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FOREGROUND_DISKS);
	__type(key, __u32);
	__type(value, __u32);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FOREGROUND_DISKS);
	__type(key, __u32);
	__type(value, struct foreground);
} met SEC(".maps");

struct begun {
	__u64 since_ns;
	__u32 index;
	__u16 own;
	__u16 beside; /* one of this process is in flight already */
};

/* Requests in flight, by their address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct begun);
} in_flight SEC(".maps");

static __always_inline int is_own(void)
{
	struct bpf_pidns_info ids = {};

	/* An error is a process of another pid namespace. */
	return !bpf_get_ns_current_pid_tgid(config.pidns_device, config.pidns_inode, &ids, sizeof(ids)) &&
	       ids.tgid == config.self_pid;
}

static __always_inline int is_kernel_thread(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return task->flags & PF_KTHREAD;
}

/* Takes a request out of those in flight, and counts it out if it is of this process; returns its disk, or 0 if it is not
 * among them. */
static __always_inline struct foreground *taken_out(__u64 address, struct begun *begun)
{
	struct begun *found = bpf_map_lookup_elem(&in_flight, &address);
	struct foreground *disk;

	if (!found)
		return 0;
	*begun = *found;
	disk = bpf_map_lookup_elem(&met, &begun->index);
	if (!disk || bpf_map_delete_elem(&in_flight, &address))
		return 0;
	if (begun->own)
		__sync_fetch_and_add(&disk->own_in_flight, -1);
	return disk;
}

static __always_inline __u32 step_of(__u64 ns)
{
	__u64 units = ns / LATENCY_UNIT_NS;
	__u32 doublings = log_down(units), step;

	doublings = doublings < PER_DOUBLING_LOG ? 0 : doublings - PER_DOUBLING_LOG;
	step = (doublings << PER_DOUBLING_LOG) + (units >> doublings);
	return step < LATENCY_STEPS ? step : LATENCY_STEPS - 1;
}

SEC("tp_btf/block_io_start")
int BPF_PROG(on_io_start, struct request *request)
{
	__u32 op = request->cmd_flags & REQ_OP_MASK, number, *index;
	struct begun begun = {}, before;
	__u64 address = (__u64)request;
	struct gendisk *on = disk_of(request);
	struct foreground *disk;

	if (op > REQ_OP_WRITE || !on)
		return 0;
	number = on->major << 20 | on->first_minor;
	index = bpf_map_lookup_elem(&watched, &number);
	if (!index)
		return 0;
	/* The end of what had this address was not shown. */
	taken_out(address, &before);
	begun.index = *index;
	begun.own = is_own();
	begun.since_ns = bpf_ktime_get_ns();
	if (!begun.own && op == REQ_OP_WRITE && is_kernel_thread())
		return 0;
	disk = bpf_map_lookup_elem(&met, &begun.index);
	if (!disk)
		return 0;
	begun.beside = disk->own_in_flight > 0;
	if (!bpf_map_update_elem(&in_flight, &address, &begun, BPF_NOEXIST) && begun.own)
		__sync_fetch_and_add(&disk->own_in_flight, 1);
	return 0;
}

/* It has become a part of another one, and does not complete. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(on_rq_merge, struct request *request)
{
	struct begun begun;

	taken_out((__u64)request, &begun);
	return 0;
}

/* `bytes` are fewer than those that are left, if only a part is done. */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_rq_complete, struct request *request, int error, unsigned int bytes)
{
	struct foreground *disk;
	struct begun begun;
	__u32 step;

	if (bytes < request->__data_len)
		return 0;
	disk = taken_out((__u64)request, &begun);
	if (!disk || begun.own)
		return 0;
	step = step_of(bpf_ktime_get_ns() - begun.since_ns);
	if (step >= LATENCY_STEPS)
		return 0;
	if (begun.beside)
		__sync_fetch_and_add(&disk->beside[step], 1);
	else
		__sync_fetch_and_add(&disk->alone[step], 1);
	return 0;
}
