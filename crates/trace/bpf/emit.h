/* Records a wanted access: as an event for user space, or by a counter. */
#ifndef FRAGMEND_EMIT_H
#define FRAGMEND_EMIT_H

#define COARSE (128 * 1024ULL)
#define MAX_OFFSET 0x7fffffffffffffffULL

/* An access that is folded. */
struct folding {
	struct fold_key key;
	__u64 time_ns;
	__u32 weight;
	__u32 pad;
};

static __always_inline int reaches_device(__u32 kind)
{
	return (kind & KIND_OP_MASK) == OP_MISS || kind & KIND_DIRECT;
}

static __always_inline int add_bytes(void *map, struct fold_key *key, __u64 bytes)
{
	struct fold_value *value = bpf_map_lookup_elem(map, key);

	if (value)
		__sync_fetch_and_add(&value->bytes, bytes);
	return !!value;
}

/* Counts an access in its turn. Two that come at once in a new turn may count in another one, or not. */
static __always_inline void add_in_turn(struct fold_value *value, __u64 time_ns, __u32 weight)
{
	__u64 turn = time_ns >> TURN_SHIFT, last = value->last_ns >> TURN_SHIFT;
	__u32 present = weight;

	if (turn < last) {
		/* It was emitted later than others; of turns between these two nothing is known any more. */
		if (turn == value->heaviest_ns >> TURN_SHIFT)
			__sync_fetch_and_add(&value->heaviest, weight);
		return;
	}
	if (turn == last)
		present += value->present;
	value->present = present;
	value->last_ns = time_ns;
	if (present > value->heaviest) {
		value->heaviest = present;
		value->heaviest_ns = time_ns;
	}
}

static __always_inline void add_to(struct fold_value *value, struct folding *access, __u64 bytes, int in_turn)
{
	__sync_fetch_and_add(&value->count, access->weight);
	__sync_fetch_and_add(&value->bytes, bytes);
	if (access->time_ns < value->first_ns)
		value->first_ns = access->time_ns;
	if (in_turn)
		add_in_turn(value, access->time_ns, access->weight);
}

static __always_inline int add_some(void *map, struct folding *access, __u64 bytes)
{
	struct fold_value *value = bpf_map_lookup_elem(map, &access->key);
	struct fold_value first = { .count = access->weight, .bytes = bytes, .first_ns = access->time_ns };
	int in_turn = control.turns && reaches_device(access->key.kind);
	struct stats *s;

	if (value) {
		add_to(value, access, bytes, in_turn);
		return 1;
	}
	if (in_turn) {
		first.last_ns = first.heaviest_ns = access->time_ns;
		first.present = first.heaviest = access->weight;
	}
	if (!bpf_map_update_elem(map, &access->key, &first, BPF_NOEXIST)) {
		s = my_stats();
		if (s)
			COUNT(s->ranges, 1);
		return 1;
	}
	/* The map is full, or another processor has just inserted the key. */
	value = bpf_map_lookup_elem(map, &access->key);
	if (!value)
		return 0;
	add_to(value, access, bytes, in_turn);
	return 1;
}

static __always_inline __u64 least(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/* Counts an access by its exact range while the map has space, and by aligned COARSE ranges afterwards; its key
 * is set to the range that was counted. */
static __noinline int count_folded(struct folding *access, __u64 size, __u64 bytes)
{
	struct fold_key *key = &access->key;
	__u64 end = key->offset + key->length;
	struct stats *s;

	bytes *= access->weight;
	if (add_some(&folded, access, bytes))
		return done();
	key->offset -= key->offset % COARSE;
	if (size < end)
		size = end;
	key->length = least((end + COARSE - 1) / COARSE * COARSE, size) - key->offset;
	s = my_stats();
	if (!s)
		return done();
	if (add_some(&coarse, access, bytes))
		COUNT(s->coarsened, 1);
	else
		COUNT(s->lost, 1);
	return done();
}

/* A buffered read that starts where the last one ended makes the kernel read ahead: the windows that it
 * enters are counted, each once, instead of the single reads. Returns 1 when that was done, and when the
 * access entered no new window. */
static __always_inline int fold_stream(struct folding *access, __u64 reader, __u64 size, __u32 window)
{
	struct fold_key *key = &access->key;
	struct stream_key at = { .reader = reader, .file = key->file };
	struct stream *stream = bpf_map_lookup_elem(&streams, &at);
	__u64 offset = key->offset, bytes = key->length, end = offset + bytes;
	__u64 from, to;

	if (!stream || stream->end != offset) {
		struct stream fresh = { .end = end };

		bpf_map_update_elem(&streams, &at, &fresh, BPF_ANY);
		return 0;
	}
	stream->end = end;
	if (end <= stream->counted) {
		/* No new window, but more bytes of the last one. */
		key->offset = stream->window;
		key->length = stream->length;
		key->kind |= KIND_WINDOWED;
		bytes *= access->weight;
		if (!add_bytes(&folded, key, bytes) && !add_bytes(&coarse, key, bytes))
			count_lost(1);
		return 1;
	}
	from = offset < stream->counted ? stream->counted : offset - offset % window;
	to = (end + window - 1) / window * window;
	stream->counted = to;
	if (size < end)
		size = end;
	key->offset = from;
	key->length = least(to, size) - from;
	key->kind |= KIND_WINDOWED;
	count_folded(access, size, bytes);
	stream->window = key->offset;
	stream->length = key->length;
	return 1;
}

static __noinline int fold(struct folding *access, struct file *opened, __u64 size, struct device *device)
{
	__u64 reader = opened ? (__u64)opened : (__u32)bpf_get_current_pid_tgid();

	if (access->key.kind == OP_READ && device && device->readahead_bytes &&
	    fold_stream(access, reader, size, device->readahead_bytes))
		return done();
	return count_folded(access, size, access->key.length);
}

/* An event or a counter for an access that passed all filters. `opened` distinguishes streams when folding
 * and may be null; `size` is the file's. */
static __noinline int emit(struct event *event, struct file *opened, __u64 size)
{
	__u32 op = event->kind & KIND_OP_MASK;
	struct stats *s = my_stats();

	/* A program may run for a moment longer when it is detached for a pause. */
	if (!s || op >= OP_COUNT || !event->weight)
		return done();
	COUNT(s->events[op], 1);
	COUNT(s->bytes[op], event->length);
	if (reaches_device(event->kind))
		COUNT(s->device_events, 1);
	if (config.fold) {
		struct device *device = bpf_map_lookup_elem(&devices, &event->device);
		struct folding access = {
			.key.file = { event->inode, event->device, event->generation },
			.key.offset = event->offset,
			.key.length = event->length,
			.key.kind = event->kind,
			.time_ns = event->time_ns,
			.weight = event->weight,
		};

		return fold(&access, opened, size, device);
	}
	/* User space polls the buffer: a wake-up for each event would cost more than the event. */
	if (bpf_ringbuf_output(&events, event, sizeof(*event), BPF_RB_NO_WAKEUP))
		COUNT(s->lost, 1);
	else
		COUNT(s->sent, 1);
	return done();
}

/* Fills in everything but the range, if the access is wanted; the time, if there is none yet. `opened` may be null. */
static __noinline int admit(struct file *opened, struct inode *inode, struct event *event)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct file_key file = {};
	struct device *device;
	__u64 pid_tgid;

	if ((BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFREG)
		return 0;
	file.device = BPF_CORE_READ(inode, i_sb, s_dev);
	device = bpf_map_lookup_elem(&devices, &file.device);
	if (!device || !wanted_task(task))
		return 0;
	if (config.btrfs) {
		file.device = device_of(inode);
		/* A subvolume that was not named is treated like the file system that it is in. */
		bpf_map_update_elem(&devices, &file.device, device, BPF_NOEXIST);
	}
	file.inode = BPF_CORE_READ(inode, i_ino);
	file.generation = BPF_CORE_READ(inode, i_generation);
	if (device->below_roots && !wanted_file(opened, inode, &file))
		return 0;
	pid_tgid = bpf_get_current_pid_tgid();
	if (!event->time_ns)
		event->time_ns = bpf_ktime_get_ns() - config.start_ns;
	event->inode = file.inode;
	event->device = file.device;
	event->generation = file.generation;
	event->pid = pid_tgid >> 32;
	event->thread = (__u32)pid_tgid;
	event->uid = bpf_get_current_uid_gid();
	event->weight = control.weight;
	name_of(task, event->comm);
	return 1;
}

/* Whether no file can have this range. A file position that another thread has moved meanwhile, or an append
 * that failed after it was submitted, results in an offset before the file or beyond MAX_OFFSET. */
static __always_inline int impossible(__u64 offset, __u64 length)
{
	return offset > MAX_OFFSET || length > MAX_OFFSET - offset || length > ~0U;
}

/* An access whose range is impossible: counted, but not recorded. */
static __always_inline int drop(__u32 kind)
{
	__u32 op = kind & KIND_OP_MASK;
	struct stats *s = my_stats();

	if (!s || op >= OP_COUNT)
		return done();
	COUNT(s->events[op], 1);
	COUNT(s->dropped, 1);
	return done();
}

/* Records an access if it is wanted. `opened` may be null. */
static __noinline int record(struct file *opened, struct inode *inode, __u64 offset, __u64 length,
			     __u32 kind)
{
	struct event event = { .offset = offset, .length = length, .kind = kind };

	if (!length || !admit(opened, inode, &event))
		return done();
	if (impossible(offset, length))
		return drop(kind);
	return emit(&event, opened, config.fold ? BPF_CORE_READ(inode, i_size) : 0);
}

#endif
