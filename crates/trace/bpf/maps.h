/* The recorder's settings and its maps. User space sets the sizes that are marked so before loading. */
#ifndef FRAGMEND_MAPS_H
#define FRAGMEND_MAPS_H

const volatile struct config config = {};

/* The ring buffer of events to user space; sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 25);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stats);
} stats SEC(".maps");

/* The watched file systems, by the kernel's device number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct device);
} devices SEC(".maps");

/* The watched directories (or files) on devices with `below_roots`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct file_key);
	__type(value, __u8);
} roots SEC(".maps");

/* Whether a name of a file is below one of the roots. */
struct placed {
	__u64 dentry, parent; /* the addresses of the name and of its directory */
	__u64 at_ns;
	__u64 verdict;
};

/* A cache of them, so that not every access needs the walk. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct file_key);
	__type(value, struct placed);
} verdicts SEC(".maps");

/* The watched processes; fork and exit keep the map current. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u8);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} cgroup SEC(".maps");

/* Folded accesses; sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct fold_key);
	__type(value, struct fold_value);
} folded SEC(".maps");

/* Accesses that are rounded to COARSE bytes, once `folded` is full; sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct fold_key);
	__type(value, struct fold_value);
} coarse SEC(".maps");

/* Sequential streams: of an open file, or of a thread where there is none, on one inode. */
struct stream_key {
	__u64 reader;
	struct file_key file;
};

struct stream {
	__u64 end; /* of the last access */
	__u64 counted; /* end of the last readahead window that was counted */
	__u64 window, length; /* the range as which it was counted */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct stream_key);
	__type(value, struct stream);
} streams SEC(".maps");

/* What threads are fetching into the page cache. User space reads what is left at the end. No entry may be
 * evicted; one is deleted when its thread ends. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct fetch);
} fetches SEC(".maps");

/* The held faults, by thread. User space reads those that are left at the end, and on_thread_exit emits that
 * of a thread that ends. No entry may be evicted: a fault that finds the map full is not held back, but
 * emitted at once. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct held);
} faults SEC(".maps");

/* Direct I/O that threads have begun and not queued or waited for yet. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct direct);
} directs SEC(".maps");

/* Threads in whose present system call direct I/O is done, and how many bytes of it they have waited for. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} direct_calls SEC(".maps");

/* Requests of direct I/O, by their kiocb's address, on file systems that do some of it through the page cache. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u8);
} direct_iocbs SEC(".maps");

/* Rings of io_uring, by the kernel's address, whose requests were on watched file systems or on files
 * that are not known. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u8);
} rings SEC(".maps");

/* The disks, in the order of `config.disks`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_DISKS);
	__type(key, __u32);
	__type(value, struct disk);
} disks SEC(".maps");

/* Requests (or bios) in flight on them, by the kernel's address. */
struct in_flight {
	__u64 since_ns;
	__u32 bytes;
	__u32 number; /* in flight, with itself */
	__u32 write;
	__u32 burst; /* if it is a read */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct in_flight);
} issued SEC(".maps");

/* CLASSES of each disk; sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct answers);
} answers SEC(".maps");

/* Zero, but the compiler does not know that: it would drop the constant result of a function that
 * is not inlined, and the verifier would see an arbitrary value in the result's register. */
static __always_inline int done(void)
{
	int zero = 0;

	asm volatile("" : "+r"(zero));
	return zero;
}

static __always_inline struct stats *my_stats(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&stats, &zero);
}

/* Adds to a counter. Another program may run on this processor in between, where the kernel preempts. */
#define COUNT(counter, number) __sync_fetch_and_add(&(counter), (number))

static __always_inline void count_lost(__u64 accesses)
{
	struct stats *s = my_stats();

	if (s)
		COUNT(s->lost, accesses);
}

#endif
