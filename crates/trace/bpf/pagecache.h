/* Faults on mapped files, and what the page cache reads from the device.
 *
 * A fault has up to three steps: the kernel maps what is cached around the page (mm_filemap_map_pages reports
 * the range, not which of its pages were cached), then, if the page itself was not cached, fetches it
 * (mm_filemap_fault), often with readahead, and maps again. So the last step of each thread is held back:
 *
 *   map           -> the range is held; it is recorded unless a fault inside it follows, which
 *                    means that the page was not cached and only its neighbours were mapped
 *   fault         -> the page is held; if readahead follows, the pages that it fetches are recorded
 *                    instead: the kernel maps whole folios of them without another fault
 *   fault, map    -> the map adds nothing
 *   map of pages that the last two readaheads fetched for this thread: adds nothing either
 *
 * Without the tracepoints of readahead, a fault is recorded with the range of the map after it. A huge page
 * that was cached before is recorded as one range, or not at all.
 */
#ifndef FRAGMEND_PAGECACHE_H
#define FRAGMEND_PAGECACHE_H

/* The bytes of some pages of a file, up to its end; 0 when the pages begin beyond it. */
static __always_inline __u64 page_bytes(__u64 size, __u64 index, __u64 end)
{
	__u64 from = index << config.page_shift, to = least(end << config.page_shift, size);

	return from < to ? to - from : 0;
}

static __always_inline int record_pages(struct inode *inode, __u64 index, __u64 end)
{
	__u64 size = BPF_CORE_READ(inode, i_size);

	return record(0, inode, index << config.page_shift, page_bytes(size, index, end), OP_MISS);
}

static __always_inline int same_file(struct file_key *file, struct inode *inode)
{
	return file->inode == BPF_CORE_READ(inode, i_ino) &&
	       file->device == device_of(inode);
}

static __always_inline int settle(struct held *held)
{
	__u32 was = held->state;

	held->state = 0;
	return was ? emit(&held->event, 0, held->size) : 0;
}

/* Otherwise the held faults of threads that have ended would fill the map. */
SEC("raw_tp/sched_process_exit")
int on_thread_exit(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct held *held = bpf_map_lookup_elem(&faults, &thread);

	if (held) {
		settle(held);
		bpf_map_delete_elem(&faults, &thread);
	}
	bpf_map_delete_elem(&missing, &thread);
	return 0;
}

/* Holds these pages back as the thread's last fault. */
static __noinline int hold(struct inode *inode, __u64 index, __u64 end, __u32 state)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct held fresh = { .page = index, .state = HELD_ANY | state };
	struct held *held;

	fresh.size = BPF_CORE_READ(inode, i_size);
	fresh.event.offset = index << config.page_shift;
	fresh.event.length = page_bytes(fresh.size, index, end);
	fresh.event.kind = OP_FAULT;
	if (!fresh.event.length || !admit(0, inode, &fresh.event))
		return done();
	held = bpf_map_lookup_elem(&faults, &thread);
	if (!held) {
		if (bpf_map_update_elem(&faults, &thread, &fresh, BPF_ANY))
			return emit(&fresh.event, 0, fresh.size);
		return done();
	}
	settle(held);
	if (held->event.inode == fresh.event.inode && held->event.device == fresh.event.device) {
		fresh.start = held->start;
		fresh.second = held->second;
		fresh.end = held->end;
	}
	*held = fresh;
	return done();
}

/* This thread's last fault, if it was on this file. */
static __always_inline struct held *held_on(struct inode *inode)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct held *held = bpf_map_lookup_elem(&faults, &thread);
	struct file_key file;

	if (!held)
		return 0;
	file.inode = held->event.inode;
	file.device = held->event.device;
	return same_file(&file, inode) ? held : 0;
}

/* A page that is not mapped because it is not in the cache, or because it is the one that starts the next
 * readahead. */
SEC("raw_tp/mm_filemap_fault")
int on_fault(struct bpf_raw_tracepoint_args *ctx)
{
	struct address_space *mapping = (void *)ctx->args[0];
	struct inode *inode = BPF_CORE_READ(mapping, host);
	__u64 index = ctx->args[1], at = index << config.page_shift;
	struct held *held;

	if (!inode)
		return 0;
	if (config.level_miss) {
		__u32 thread = bpf_get_current_pid_tgid();
		struct missing page = { .index = index };

		page.file.inode = BPF_CORE_READ(inode, i_ino);
		page.file.device = device_of(inode);
		if (bpf_map_update_elem(&missing, &thread, &page, BPF_ANY))
			count_lost(1);
		return 0;
	}
	held = held_on(inode);
	if (held && held->state == HELD_ANY && at >= held->event.offset &&
	    at - held->event.offset < held->event.length)
		held->state = 0;
	return hold(inode, index, index + 1, HELD_FAULT);
}

SEC("raw_tp/mm_filemap_map_pages")
int on_map_pages(struct bpf_raw_tracepoint_args *ctx)
{
	struct address_space *mapping = (void *)ctx->args[0];
	struct inode *inode = BPF_CORE_READ(mapping, host);
	__u64 index = ctx->args[1], end = ctx->args[2] + 1;
	struct held *held;

	if (!inode)
		return 0;
	held = held_on(inode);
	if (held && held->state & HELD_FAULT && held->page >= index && held->page < end) {
		if (!config.readahead_seen) {
			held->event.offset = index << config.page_shift;
			held->event.length = page_bytes(held->size, index, end);
		}
		return settle(held);
	}
	if (held && index >= held->start && end <= held->end)
		return 0;
	return hold(inode, index, end, 0);
}

static __always_inline void read_ahead(struct inode *inode, __u64 index, __u64 end)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct held *held;
	__u64 length;

	if (config.level_miss) {
		bpf_map_delete_elem(&missing, &thread);
		return;
	}
	held = held_on(inode);
	if (!held || !(held->state & HELD_FAULT) || held->state & HELD_READAHEAD)
		return;
	length = page_bytes(held->size, index, end);
	if (!length)
		return;
	held->state |= HELD_READAHEAD;
	held->event.offset = index << config.page_shift;
	held->event.length = length;
	held->start = held->end == index ? held->second : index;
	held->second = index;
	held->end = end;
}

/* Readahead in large folios, announced before it is known whether the file system supports them: if not, or
 * for the rest, page_cache_ra_unbounded follows in the same thread. */
SEC("raw_tp/page_cache_ra_order")
int on_ra_order(struct bpf_raw_tracepoint_args *ctx)
{
	struct inode *inode = (void *)ctx->args[0];
	struct file_ra_state *ra = (void *)ctx->args[2];
	__u32 thread = bpf_get_current_pid_tgid();
	struct announced announced = { .index = ctx->args[1] };

	if (!inode)
		return 0;
	announced.end = announced.index + BPF_CORE_READ(ra, size);
	read_ahead(inode, announced.index, announced.end);
	if (!config.level_miss)
		return 0;
	announced.file.inode = BPF_CORE_READ(inode, i_ino);
	announced.file.device = device_of(inode);
	bpf_map_update_elem(&announcements, &thread, &announced, BPF_ANY);
	return record_pages(inode, announced.index, announced.end);
}

SEC("raw_tp/page_cache_ra_unbounded")
int on_ra_unbounded(struct bpf_raw_tracepoint_args *ctx)
{
	struct inode *inode = (void *)ctx->args[0];
	__u64 index = ctx->args[1], end = index + ctx->args[2];
	__u32 thread = bpf_get_current_pid_tgid();
	struct announced *announced;

	if (!inode)
		return 0;
	read_ahead(inode, index, end);
	if (!config.level_miss)
		return 0;
	announced = bpf_map_lookup_elem(&announcements, &thread);
	if (announced && same_file(&announced->file, inode) && index >= announced->index &&
	    end <= announced->end) {
		bpf_map_delete_elem(&announcements, &thread);
		return 0;
	}
	return record_pages(inode, index, end);
}

/* Miss level: a fault without readahead (MADV_RANDOM) adds its page to the cache by itself. */
SEC("raw_tp/mm_filemap_add_to_page_cache")
int on_add_page(struct bpf_raw_tracepoint_args *ctx)
{
	struct folio *folio = (void *)ctx->args[0];
	struct inode *inode = BPF_CORE_READ(folio, mapping, host);
	__u32 thread = bpf_get_current_pid_tgid();
	struct missing *page = bpf_map_lookup_elem(&missing, &thread);
	__u64 index;

	if (!page || !inode || !same_file(&page->file, inode))
		return 0;
	index = page->index;
	if (BPF_CORE_READ(folio, index) != index)
		return 0;
	bpf_map_delete_elem(&missing, &thread);
	return record_pages(inode, index, index + 1);
}

#endif
