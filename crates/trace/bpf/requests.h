/* Requests of the block layer: the disk of one, and logarithms of their sizes. */
#ifndef FRAGMEND_REQUESTS_H
#define FRAGMEND_REQUESTS_H

/* The largest power of two that is not above `n`, as its logarithm; 0 for 0. No loop, for the verifier. */
static __always_inline __u32 log_down(__u64 n)
{
	__u32 log, step;

	log = (n > 0xffffffffULL) << 5;
	n >>= log;
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
	return log | n >> 1;
}

/* The smallest power of two that is at least `n`, as its logarithm. */
static __always_inline __u32 log_up(__u32 n)
{
	return n <= 1 ? 0 : log_down(n - 1) + 1;
}

static __always_inline struct gendisk *disk_of(struct request *request)
{
	/* Since Linux 5.17 the queue has it. */
	if (bpf_core_field_exists(request->rq_disk))
		return request->rq_disk;
	return request->q->disk;
}

#endif
