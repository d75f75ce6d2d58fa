/* The structures that foreground.bpf.c and user space share; src/foreground/shared.rs mirrors them field by field, and
 * the steps are those of fragmend_layout::Latencies. */
#ifndef FRAGMEND_FOREGROUND_H
#define FRAGMEND_FOREGROUND_H

#define FOREGROUND_DISKS 64
#define LATENCY_UNIT_NS 256
#define PER_DOUBLING_LOG 5
#define LATENCY_STEPS 736

struct foreground_config {
	__u64 pidns_device; /* of the pid namespace of this process, and its number of itself there */
	__u64 pidns_inode;
	__u32 self_pid;
	__u32 pad;
};

/* What requests of others met at a disk, by how long they lasted. */
struct foreground {
	__s64 own_in_flight;
	__u64 alone[LATENCY_STEPS]; /* with none of this process in flight when they began */
	__u64 beside[LATENCY_STEPS]; /* with one */
};

#endif
