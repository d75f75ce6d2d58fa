/* Direct I/O, as the file systems do it. iomap_dio_rw_begin shows who asks for what; the same thread then either
 * queues it (iomap_dio_rw_queued) or waits until it is done (iomap_dio_complete), which show how much it was. These
 * programs run all the time: direct I/O reaches the device, and no pause may hide it.
 *
 * What was queued completes in an interrupt, perhaps while on_dio_complete() runs on this processor: the kernel skips it
 * then, and nothing is lost, because it has been recorded.
 *
 * What a file system does through the page cache although the file was opened with O_DIRECT does not come here, or in
 * part: Btrfs reads compressed data and writes all that has checksums so. That part is recorded like a buffered access,
 * and what it fetches is a miss. A call of io_submit is taken to be all of one kind; and on other file systems (ext4
 * with data=journal) what io_uring and io_submit do so are misses alone.
 */
#ifndef FRAGMEND_DIRECT_H
#define FRAGMEND_DIRECT_H

/* Whether the file's file system is known to do some direct I/O through the page cache. */
static __always_inline int may_fall_back(struct inode *inode)
{
	return config.btrfs && BPF_CORE_READ(inode, i_sb, s_magic) == BTRFS_SUPER_MAGIC;
}

#define BEGUN 4096

/* How many threads have an entry in `directs`, by their number modulo BEGUN: most have none while few places are
 * recorded, and the programs that end direct I/O need not search for it then. One that is evicted stays counted. */
__u32 begun_by[BEGUN];

static __always_inline __u32 *begun_like(__u32 thread)
{
	return &begun_by[thread & (BEGUN - 1)];
}

/* What this thread has begun; null if it is not recorded. */
static __always_inline struct direct *begun_of(__u32 thread)
{
	return *begun_like(thread) ? bpf_map_lookup_elem(&directs, &thread) : 0;
}

/* Notes that the present call does direct I/O, `bytes` of which are done. */
static __always_inline void note_direct_call(__u64 bytes)
{
	__u32 thread = bpf_get_current_pid_tgid();

	if (config.requests && control.weight)
		bpf_map_update_elem(&direct_calls, &thread, &bytes, BPF_ANY);
}

/* The present call ends. */
static __always_inline void end_direct_call(void)
{
	__u32 thread = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&direct_calls, &thread);
}

SEC("tp_btf/iomap_dio_rw_begin")
int BPF_PROG(on_dio_begin, struct kiocb *iocb, struct iov_iter *iter, unsigned int flags, unsigned long before)
{
	struct file *file = iocb->ki_filp;
	struct inode *inode = file->f_inode;
	__u64 time_ns = 0;
	__u32 weight = inode ? sampled(inode->i_ino, iocb->ki_pos, &time_ns) : 0;
	__u32 thread;
	int error;

	if (!weight)
		return 0;
	struct direct begun = { .iocb = (__u64)iocb, .before = before, .asked = iter->count };

	begun.event.kind = (iter->data_source ? OP_WRITE : OP_READ) | KIND_DIRECT;
	begun.event.offset = iocb->ki_pos;
	begun.event.time_ns = time_ns;
	if (!admit(file, inode, &begun.event))
		return 0;
	begun.event.weight = weight;
	begun.inode = (__u64)inode;
	/* A call that waits is known by its result. */
	begun.falls_back = iocb->ki_complete && may_fall_back(inode);
	begun.size = inode->i_size;
	thread = bpf_get_current_pid_tgid();
	error = bpf_map_update_elem(&directs, &thread, &begun, BPF_NOEXIST);
	if (!error)
		__sync_fetch_and_add(begun_like(thread), 1);
	/* One that failed before it was issued is replaced. */
	else if (error == -EEXIST)
		error = bpf_map_update_elem(&directs, &thread, &begun, BPF_ANY);
	if (error)
		count_lost(1);
	return 0;
}

static __always_inline int issued_direct(struct direct *begun, __u32 thread, __u64 length)
{
	__u8 yes = 1;

	if (length) {
		if (begun->falls_back) {
			bpf_map_update_elem(&direct_iocbs, &begun->iocb, &yes, BPF_ANY);
			note_direct_call(0);
		}
		begun->event.length = length;
		emit(&begun->event, 0, begun->size);
	}
	if (!bpf_map_delete_elem(&directs, &thread))
		__sync_fetch_and_add(begun_like(thread), -1);
	return 0;
}

/* All up to `at` is on its way. */
SEC("tp_btf/iomap_dio_rw_queued")
int BPF_PROG(on_dio_queued, struct inode *inode, long at)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct direct *begun = begun_of(thread);
	__u64 end = at;

	if (!begun || begun->inode != (__u64)inode || end < begun->event.offset ||
	    end - begun->event.offset > begun->asked)
		return 0;
	if ((begun->event.kind & KIND_OP_MASK) == OP_READ)
		end = least(end, begun->size);
	return issued_direct(begun, thread, end > begun->event.offset ? end - begun->event.offset : 0);
}

/* `result` is the number of bytes up to the file position, including those of earlier parts, or an error. */
SEC("tp_btf/iomap_dio_complete")
int BPF_PROG(on_dio_complete, struct kiocb *iocb, int error, long result)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct direct *begun = begun_of(thread);

	/* The calling thread has not returned to its program yet: on_sys_exit() shall not record this part again. */
	if (!iocb->ki_complete && result > 0)
		note_direct_call(result);
	if (!begun || begun->iocb != (__u64)iocb)
		return 0;
	return issued_direct(begun, thread, result > (long)begun->before ? result - begun->before : 0);
}

#endif
