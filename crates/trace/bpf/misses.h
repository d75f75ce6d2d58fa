/* What the page cache fetches from the device: misses.
 *
 * Readahead announces the pages that it wants (page_cache_ra_order, page_cache_ra_unbounded), and a fault the one
 * that it needs (mm_filemap_fault). Some of them may be cached already: those that the thread then adds to the
 * cache (mm_filemap_add_to_page_cache) are read from the device. Pages that follow each other are one miss. It is
 * recorded when all announced pages were added, when the thread's next fetch begins, or when it ends; the time is
 * that of the first page.
 *
 * A page that is added without an announcement is one that a program writes: it is not read. So is one that is added in
 * another system call than the announcement was made in, or once all announced pages were added.
 */
#ifndef FRAGMEND_MISSES_H
#define FRAGMEND_MISSES_H

/* The bytes of some pages of a file, up to its end; 0 when the pages begin beyond it. */
static __always_inline __u64 page_bytes(__u64 size, __u64 index, __u64 end)
{
	__u64 from = index << config.page_shift, to = least(end << config.page_shift, size);

	return from < to ? to - from : 0;
}

/* The pages of a folio. Only a large one knows their number. */
static __always_inline __u64 folio_pages(struct folio *folio)
{
	unsigned long flags = 0; /* the first member in every version */

	bpf_probe_read_kernel(&flags, sizeof(flags), folio);
	if (!(flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
		return 1;
	if (bpf_core_field_exists(folio->_nr_pages))
		return BPF_CORE_READ(folio, _nr_pages);
	if (bpf_core_field_exists(folio->_flags_1))
		return 1ULL << (BPF_CORE_READ(folio, _flags_1) & 0x1f);
	return 1;
}

#define NOT_SAMPLED (~0ULL) /* as the start: the pages are not recorded */

static __always_inline int finish_fetch(struct fetch *fetch)
{
	if (!fetch->event.length)
		return 0;
	emit(&fetch->event, 0, fetch->size);
	fetch->event.length = 0;
	return 0;
}

/* The number of the system call that this thread is in. */
static __always_inline __u64 present_call(void)
{
	return NUMBER_AT(bpf_task_pt_regs(bpf_get_current_task_btf()));
}

/* All that was announced was added, or the thread does something else now. */
static __always_inline int disarm(struct fetch *fetch)
{
	finish_fetch(fetch);
	fetch->inode = 0;
	return 0;
}

/* This thread wants these pages of a watched file system. */
static __noinline int announce(struct inode *inode, __u64 from, __u64 to)
{
	__u32 thread = bpf_get_current_pid_tgid();
	__u64 size = BPF_CORE_READ(inode, i_size);
	struct fetch *fetch;
	__u64 call;

	call = present_call();
	to = least(to, (size + (1ULL << config.page_shift) - 1) >> config.page_shift);
	fetch = bpf_map_lookup_elem(&fetches, &thread);
	if (!fetch) {
		struct fetch fresh = {
			.inode = (__u64)inode, .size = size, .from = from, .to = to, .call = call
		};

		if (bpf_map_update_elem(&fetches, &thread, &fresh, BPF_ANY))
			count_lost(1);
		return done();
	}
	/* Within what was announced, this is the rest of it: single pages where there was no large folio. */
	if (fetch->inode != (__u64)inode || from < fetch->from || to > fetch->to) {
		finish_fetch(fetch);
		fetch->start = 0;
	}
	fetch->inode = (__u64)inode;
	fetch->size = size;
	fetch->from = from;
	fetch->to = to;
	fetch->call = call;
	return done();
}

SEC("raw_tp/mm_filemap_add_to_page_cache")
int on_add_page(struct bpf_raw_tracepoint_args *ctx)
{
	struct folio *folio = (void *)ctx->args[0];
	__u32 thread = bpf_get_current_pid_tgid();
	struct fetch *fetch = bpf_map_lookup_elem(&fetches, &thread);
	struct inode *inode;
	__u64 index, end;

	if (!fetch)
		return 0;
	inode = BPF_CORE_READ(folio, mapping, host);
	if (!inode || fetch->inode != (__u64)inode)
		return 0;
	if (fetch->call != present_call())
		return disarm(fetch);
	index = BPF_CORE_READ(folio, index);
	end = index + folio_pages(folio);
	if (end <= fetch->from || index >= fetch->to)
		return 0;
	if (fetch->event.length && fetch->end != index)
		finish_fetch(fetch);
	if (!fetch->event.length) {
		__u64 time_ns = 0;
		__u32 weight = 0;

		/* The first page decides about those that follow it, too. */
		if (fetch->start != NOT_SAMPLED || fetch->end != index)
			weight = sampled(BPF_CORE_READ(inode, i_ino), index << config.page_shift, &time_ns);
		if (!weight) {
			fetch->start = NOT_SAMPLED;
			fetch->end = end;
			if (end >= fetch->to)
				fetch->inode = 0;
			return 0;
		}
		fetch->event.time_ns = time_ns; /* not that of the last event */
		if (!admit(0, inode, &fetch->event)) {
			fetch->inode = 0;
			return 0;
		}
		fetch->event.weight = weight;
		fetch->start = index;
		fetch->event.kind = OP_MISS;
		fetch->event.offset = index << config.page_shift;
	}
	fetch->end = end;
	fetch->event.length = page_bytes(fetch->size, fetch->start, end);
	return end >= fetch->to ? disarm(fetch) : 0;
}

/* What a thread was fetching when it ends. */
static __always_inline void end_fetch(__u32 thread)
{
	struct fetch *fetch = bpf_map_lookup_elem(&fetches, &thread);

	if (fetch) {
		finish_fetch(fetch);
		bpf_map_delete_elem(&fetches, &thread);
	}
}

#endif
