/* What the disks below the watched file systems answer: a histogram of their reads and writes by length and by the
 * number in flight, and bursts of reads.
 *
 * A request is in flight from block_rq_issue to block_rq_complete. Disks without requests, such as those of
 * device-mapper, have bios: from block_bio_queue to block_bio_complete. All requests of a disk count, whoever issues
 * them. Those that were in flight before the recording began are not known.
 */
#ifndef FRAGMEND_DISKS_H
#define FRAGMEND_DISKS_H

#define NO_DISK MAX_DISKS

/* The index of a disk in `config.disks`, if it is watched and has bios, or requests. */
static __always_inline __u32 disk_index(struct gendisk *disk, __u32 bios)
{
	__u32 number, i;

	if (!disk)
		return NO_DISK;
	number = disk->major << 20 | disk->first_minor;
	for (i = 0; i < MAX_DISKS && i < config.disk_count; i++)
		if (config.disks[i] == number && (config.bio_disks >> i & 1) == bios)
			return i;
	return NO_DISK;
}

/* The smallest power of two that is at least `n`, as its logarithm. */
static __always_inline __u32 log_up(__u32 n)
{
	__u32 log = 0, step;

	if (n <= 1)
		return 0;
	n--;
	step = (n > 0xffff) << 4;
	n >>= step;
	log |= step;
	step = (n > 0xff) << 3;
	n >>= step;
	log |= step;
	step = (n > 0xf) << 2;
	n >>= step;
	log |= step;
	step = (n > 3) << 1;
	n >>= step;
	log |= step;
	return (log | n >> 1) + 1;
}

/* A request could not be entered into the table of those in flight, or not be removed from it. */
static __always_inline void count_unanswered(void)
{
	struct stats *s = my_stats();

	if (s)
		COUNT(s->unanswered, 1);
}

/* A request of a burst is in flight. */
static __always_inline void joins_burst(struct disk *disk, __u32 burst)
{
	if (__sync_fetch_and_add(&disk->bursts[burst % BURSTS], 1) == 0)
		__sync_fetch_and_add(&disk->bursts_in_flight, 1);
}

/* It is not any more. */
static __always_inline void leaves_burst(struct disk *disk, __u32 burst)
{
	if (__sync_fetch_and_add(&disk->bursts[burst % BURSTS], -1) == 1)
		__sync_fetch_and_add(&disk->bursts_in_flight, -1);
}

/* A read or write is issued. */
static __noinline int begins(__u32 index, __u64 address, __u32 bytes, __u32 write)
{
	struct in_flight request = { .bytes = bytes, .write = write }, *before;
	__u32 thread = bpf_get_current_pid_tgid();
	struct disk *disk = bpf_map_lookup_elem(&disks, &index);
	__u32 first;
	int error;

	if (!disk)
		return done();
	first = disk->completed || disk->last_reader != thread;
	request.since_ns = bpf_ktime_get_ns();
	request.number = disk->in_flight + 1;
	request.burst = disk->last_burst + first;
	error = bpf_map_update_elem(&issued, &address, &request, BPF_NOEXIST);
	/* The driver had put it back in the queue; or its end was not seen, and the address is used again. */
	if (error == -EEXIST) {
		before = bpf_map_lookup_elem(&issued, &address);
		if (before && !before->write)
			leaves_burst(disk, before->burst);
		request.burst = disk->last_burst;
		if (!write)
			joins_burst(disk, request.burst);
		bpf_map_update_elem(&issued, &address, &request, BPF_ANY);
		return done();
	}
	if (error) {
		count_unanswered();
		return done();
	}
	__sync_fetch_and_add(&disk->in_flight, 1);
	if (write)
		return done();
	if (first) {
		__sync_fetch_and_add(&disk->read_bursts, 1);
		__sync_fetch_and_add(&disk->in_flight_before, request.number ? request.number - 1 : 0);
		__sync_fetch_and_add(&disk->bursts_before, disk->bursts_in_flight);
		disk->last_burst = request.burst;
		disk->last_reader = thread;
		disk->completed = 0;
	}
	joins_burst(disk, request.burst);
	return done();
}

/* It is done. */
static __noinline int ends(__u32 index, __u64 address)
{
	struct disk *disk = bpf_map_lookup_elem(&disks, &index);
	struct in_flight *request = bpf_map_lookup_elem(&issued, &address);
	struct answers *all;
	__u32 length, depth;
	__u64 ns;

	if (!disk || !request)
		return done();
	__sync_fetch_and_add(&disk->in_flight, -1);
	if (!request->write)
		leaves_burst(disk, request->burst);
	disk->completed = 1;
	ns = bpf_ktime_get_ns() - request->since_ns;
	length = log_up(request->bytes);
	length = length < SHORTEST_LOG ? 0 : length - SHORTEST_LOG;
	depth = log_up(request->number);
	if (length >= LENGTHS)
		length = LENGTHS - 1;
	if (depth >= DEPTHS)
		depth = DEPTHS - 1;
	index = index * CLASSES + (!!request->write * LENGTHS + length) * DEPTHS + depth;
	all = bpf_map_lookup_elem(&answers, &index);
	if (all) {
		COUNT(all->count, 1);
		COUNT(all->bytes, request->bytes);
		COUNT(all->in_flight, request->number);
		COUNT(all->total_ns, ns);
	}
	/* The kernel may not have the lock of the table in time. The next request at this address does not add itself to
	 * those in flight then.
	 */
	if (bpf_map_delete_elem(&issued, &address)) {
		__sync_fetch_and_add(&disk->in_flight, 1);
		count_unanswered();
	}
	return done();
}

static __always_inline struct gendisk *disk_of(struct request *request)
{
	/* Since Linux 5.17 the queue has it. */
	if (bpf_core_field_exists(request->rq_disk))
		return request->rq_disk;
	return request->q->disk;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_rq_issue, struct request *request)
{
	__u32 op = request->cmd_flags & REQ_OP_MASK, bytes = request->__data_len;
	__u32 index;

	if (op > REQ_OP_WRITE || !bytes)
		return 0;
	index = disk_index(disk_of(request), 0);
	return index < NO_DISK ? begins(index, (__u64)request, bytes, op) : 0;
}

/* `bytes` are fewer than those that are left, if only a part is done. */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_rq_complete, struct request *request, int error, unsigned int bytes)
{
	__u32 index;

	if ((request->cmd_flags & REQ_OP_MASK) > REQ_OP_WRITE || bytes < request->__data_len)
		return 0;
	index = disk_index(disk_of(request), 0);
	return index < NO_DISK ? ends(index, (__u64)request) : 0;
}

static __always_inline struct gendisk *disk_of_bio(struct bio *bio)
{
	return bpf_core_field_exists(bio->bi_bdev) ? bio->bi_bdev->bd_disk : 0;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(on_bio_queue, struct bio *bio)
{
	__u32 op = bio->bi_opf & REQ_OP_MASK, bytes = bio->bi_iter.bi_size;
	__u32 index;

	if (op > REQ_OP_WRITE || !bytes)
		return 0;
	index = disk_index(disk_of_bio(bio), 1);
	return index < NO_DISK ? begins(index, (__u64)bio, bytes, op) : 0;
}

SEC("tp_btf/block_bio_complete")
int BPF_PROG(on_bio_complete, struct request_queue *queue, struct bio *bio)
{
	__u32 index;

	if ((bio->bi_opf & REQ_OP_MASK) > REQ_OP_WRITE)
		return 0;
	index = disk_index(disk_of_bio(bio), 1);
	return index < NO_DISK ? ends(index, (__u64)bio) : 0;
}

#endif
