/* The structures that the kernel side and user space share; src/record/shared.rs mirrors them field by field.
 * Every structure has explicit padding, so that both compilers agree. */
#ifndef FRAGMEND_SHARED_H
#define FRAGMEND_SHARED_H

enum op { OP_READ, OP_WRITE, OP_FAULT, OP_MISS, OP_COUNT };

/* Beside the operation in `kind`. */
#define KIND_OP_MASK 0xffu
#define KIND_DIRECT 0x100u
#define KIND_WINDOWED 0x200u

#define MAX_DISKS 16

#define TURN_SHIFT 21 /* of nanoseconds: how long one part of the places is recorded */

struct event {
	__u64 time_ns; /* of what is sampled by places, when it was decided: in its turn */
	__u64 inode;
	__u64 offset;
	__u32 device; /* the kernel's number, not that of stat */
	__u32 generation;
	__u32 length;
	__u32 kind;
	__u32 pid;
	__u32 thread;
	__u32 uid;
	__u32 weight; /* stands for as many accesses */
	char comm[16];
};

/* Constant during a recording; the verifier prunes what is switched off. */
struct config {
	__u32 self_pid;
	__u32 page_shift;
	__u32 o_direct;
	__u32 o_append;
	__u32 uid;
	__u8 requests; /* record what programs ask for */
	__u8 fold;
	__u8 by_pid;
	__u8 by_uid;
	__u8 by_comm;
	__u8 by_cgroup;
	__u8 readahead_seen; /* the kernel has the tracepoints of readahead */
	__u8 btrfs; /* one of the file systems is Btrfs */
	char comm[16];
	__u8 misses; /* record what the page cache fetches */
	__u8 region_shift; /* of places */
	__u8 direct_seen; /* the kernel shows direct I/O where file systems do it */
	__u8 pad_misses;
	__u64 start_ns;
	__u32 disk_count;
	__u32 bio_disks; /* a bit for each that has bios and no requests */
	__u32 disks[MAX_DISKS]; /* device numbers */
};

struct device {
	__u32 readahead_bytes; /* 0: unknown, nothing is widened */
	__u32 below_roots; /* only files below the directories in `roots` */
};

struct file_key {
	__u64 inode;
	__u32 device;
	__u32 generation;
};

struct fold_key {
	struct file_key file;
	__u64 offset;
	__u32 length;
	__u32 kind;
};

struct fold_value {
	__u64 count;
	__u64 first_ns;
	__u64 bytes; /* transferred by all accesses that were counted here */
	/* Of what reached the device while parts of the places take turns; otherwise 0. Two processors that count at once may
	 * lose a little of the last two. */
	__u64 last_ns;
	__u64 heaviest_ns; /* in the turn in which most were counted */
	__u32 heaviest; /* how many these are */
	__u32 present; /* those of the turn of `last_ns` */
};

/* The last page fault of a thread, held back until it is known how much it mapped. */
struct held {
	struct event event;
	__u64 size; /* of the file */
	__u64 page; /* that was accessed */
	/* Pages of the last two adjacent readaheads: start, start of the second, end. */
	__u64 start, second, end;
	__u32 state;
	__u32 pad;
};
#define HELD_ANY 1 /* a fault is held */
#define HELD_FAULT 2 /* of a page that was not mapped because it was not in the cache */
#define HELD_READAHEAD 4 /* and readahead followed */

/* What a thread is fetching into the page cache. */
struct fetch {
	struct event event; /* the pages that were added one after the other; `length` is 0 if there are none */
	__u64 inode; /* its address */
	__u64 size; /* of the file */
	__u64 from, to; /* the pages that readahead, or a fault, wants */
	__u64 start, end; /* those of the event */
	__u64 call; /* the number of the system call in which they are wanted; none in a fault */
};

/* Direct I/O that has begun. */
struct direct {
	struct event event; /* without its length */
	__u64 iocb, inode; /* their addresses */
	__u64 size; /* of the file */
	__u64 before; /* bytes of the call that earlier parts have done */
	__u64 asked; /* bytes that it is to transfer */
	__u64 falls_back; /* whether the file system may do it through the page cache, and the call does not wait */
};

#define BURSTS 256 /* that can be in flight at a time without being taken for one */

/* A disk below the watched file systems. */
struct disk {
	__u64 in_flight;
	__u64 read_bursts;
	__u64 in_flight_before;
	__u64 bursts_in_flight; /* of which a request is in flight */
	__u64 bursts_before;
	__u32 last_reader; /* the thread that issued the last read */
	__u32 completed; /* since then */
	__u32 last_burst; /* a number for each burst */
	__u32 pad;
	__u32 bursts[BURSTS]; /* by number, modulo their count: requests in flight */
};

/* Reads or writes of one class of length and number in flight on one disk. */
struct answers {
	__u64 count;
	__u64 bytes;
	__u64 in_flight;
	__u64 total_ns;
};
#define LENGTHS 24 /* up to 512 bytes, 1 KiB, ... 4 GiB */
#define SHORTEST_LOG 9
#define DEPTHS 17 /* 1, 2, 4, ... 65536 */
#define CLASSES (2 * LENGTHS * DEPTHS)

/* Per processor, summed by user space. */
struct stats {
	__u64 events[OP_COUNT];
	__u64 bytes[OP_COUNT];
	__u64 lost;
	__u64 dropped; /* whose offset is impossible or cannot be known */
	__u64 unplaced; /* on files of which it is not known whether they are watched */
	__u64 compat;
	__u64 splices; /* of io_uring, whose file is unknown */
	__u64 coarsened;
	__u64 uring; /* requests of io_uring whose completion is not reported */
	__u64 sent; /* events in the ring buffer */
	__u64 ranges; /* in the tables of folded accesses */
	__u64 unanswered; /* requests of disks for which the table has no space */
	__u64 device_events; /* of the events, those that reached the device: misses and direct I/O */
};

_Static_assert(sizeof(struct event) == 72, "as in shared.rs");
_Static_assert(sizeof(struct config) == 128, "as in shared.rs");
_Static_assert(sizeof(struct device) == 8, "as in shared.rs");
_Static_assert(sizeof(struct file_key) == 16, "as in shared.rs");
_Static_assert(sizeof(struct fold_key) == 32, "as in shared.rs");
_Static_assert(sizeof(struct fold_value) == 48, "as in shared.rs");
_Static_assert(sizeof(struct held) == 120, "as in shared.rs");
_Static_assert(sizeof(struct fetch) == 128, "as in shared.rs");
_Static_assert(sizeof(struct disk) == 56 + 4 * BURSTS, "as in shared.rs");
_Static_assert(sizeof(struct answers) == 32, "as in shared.rs");
_Static_assert(sizeof(struct stats) == 152, "as in shared.rs");

#endif
