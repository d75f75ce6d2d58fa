/* Faults on mapped files, and the tracepoints of readahead.
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
#ifndef FRAGMEND_FAULTS_H
#define FRAGMEND_FAULTS_H

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

/* Otherwise what is kept of threads that have ended would fill the maps. */
SEC("raw_tp/sched_process_exit")
int on_thread_exit(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct held *held = bpf_map_lookup_elem(&faults, &thread);

	if (held) {
		settle(held);
		bpf_map_delete_elem(&faults, &thread);
	}
	if (config.misses)
		end_fetch(thread);
	return 0;
}

/* Holds these pages back as the thread's last fault. */
static __noinline int hold(struct inode *inode, __u64 index, __u64 end, __u32 state)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct held fresh = { .page = index, .state = HELD_ANY | state };
	struct held *held;

	if (!control.weight) {
		/* Requests are not watched now. */
		held = bpf_map_lookup_elem(&faults, &thread);
		if (held)
			settle(held);
		return done();
	}
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

	if (!inode || !is_watched(inode))
		return 0;
	if (config.misses)
		announce(inode, index, index + 1);
	if (!config.requests)
		return 0;
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

	if (!inode || !is_watched(inode))
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

/* Readahead of these pages: by this thread's fault, if it had one. */
static __always_inline int read_ahead(struct inode *inode, __u64 index, __u64 end)
{
	struct held *held;
	__u64 length;

	if (config.misses)
		announce(inode, index, end);
	if (!config.requests)
		return 0;
	held = held_on(inode);
	if (!held || !(held->state & HELD_FAULT) || held->state & HELD_READAHEAD)
		return 0;
	length = page_bytes(held->size, index, end);
	if (!length)
		return 0;
	held->state |= HELD_READAHEAD;
	held->event.offset = index << config.page_shift;
	held->event.length = length;
	held->start = held->end == index ? held->second : index;
	held->second = index;
	held->end = end;
	return 0;
}

/* Readahead in large folios, announced before it is known whether the file system supports them: if not, or
 * for the rest, page_cache_ra_unbounded follows in the same thread. */
SEC("raw_tp/page_cache_ra_order")
int on_ra_order(struct bpf_raw_tracepoint_args *ctx)
{
	struct inode *inode = (void *)ctx->args[0];
	struct file_ra_state *ra = (void *)ctx->args[2];
	__u64 index = ctx->args[1];

	return inode && is_watched(inode) ? read_ahead(inode, index, index + BPF_CORE_READ(ra, size)) : 0;
}

SEC("raw_tp/page_cache_ra_unbounded")
int on_ra_unbounded(struct bpf_raw_tracepoint_args *ctx)
{
	struct inode *inode = (void *)ctx->args[0];
	__u64 index = ctx->args[1];

	return inode && is_watched(inode) ? read_ahead(inode, index, index + ctx->args[2]) : 0;
}

#endif
