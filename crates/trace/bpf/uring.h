/* What requests of io_uring do; and counts of those whose completion the kernel does not report, so that
 * on_io_uring_complete() cannot record them. */
#ifndef FRAGMEND_URING_H
#define FRAGMEND_URING_H

#define OPS_SPLICE (OP_COUNT + 1) /* a read or a write: neither can be told by the number alone */

/* What a request of io_uring does: OP_COUNT if nothing that is recorded. */
static __always_inline __u32 uring_op(__u8 opcode)
{
	switch (opcode) {
	case IORING_OP_READV:
	case IORING_OP_READ_FIXED:
	case IORING_OP_READ:
	case IORING_OP_READ_MULTISHOT:
	case IORING_OP_READV_FIXED:
		return OP_READ;
	case IORING_OP_WRITEV:
	case IORING_OP_WRITE_FIXED:
	case IORING_OP_WRITE:
	case IORING_OP_WRITEV_FIXED:
		return OP_WRITE;
	case IORING_OP_SPLICE:
		return OPS_SPLICE;
	}
	return OP_COUNT;
}

static __always_inline int count_unseen(void)
{
	struct stats *s = my_stats();

	if (s)
		COUNT(s->uring, 1);
	return done();
}

/* Whether accesses to `fd` are wanted. */
static __noinline int wanted_fd(__u32 fd)
{
	struct file *file = file_of(fd);
	struct event event = {};
	struct inode *inode;

	if (!file)
		return done();
	if (BPF_CORE_READ(file, f_flags) & config.o_direct ? config.direct_seen : !config.requests)
		return done();
	inode = BPF_CORE_READ(file, f_inode);
	if (!inode)
		return done();
	return done() + admit(file, inode, &event);
}

enum asked { ASKED_WATCHED, ASKED_WANTED };

/* Whether a request is on a file of a watched file system, or on one whose accesses are wanted; true
 * where the file is not known, because it is a registered one. */
static __noinline int concerns(struct io_kiocb *request, __u32 op, enum asked asked)
{
	struct io_splice *splice = (void *)request;
	__u32 fd;

	if (op == OPS_SPLICE) {
		if (!bpf_core_type_exists(struct io_splice) ||
		    (BPF_CORE_READ(splice, flags) & SPLICE_F_FD_IN_FIXED))
			return done() + 1;
		fd = BPF_CORE_READ(splice, splice_fd_in);
		if (asked == ASKED_WANTED ? wanted_fd(fd) : watched_fd(fd))
			return done() + 1;
	}
	if ((BPF_CORE_READ(request, flags) & REQ_F_FIXED_FILE) ||
	    !bpf_core_field_exists(request->cqe.fd))
		return done() + 1;
	fd = BPF_CORE_READ(request, cqe.fd);
	return done() + (asked == ASKED_WANTED ? wanted_fd(fd) : watched_fd(fd));
}

/* A request that wants no completion if it succeeds: the kernel reports none to io_uring_complete
 * then. How much it will transfer is not known yet, so it is only counted. The rings of other
 * requests are remembered for on_io_uring_overflow(). */
static __noinline int uring_submitted(struct io_kiocb *request)
{
	__u64 ring = (__u64)BPF_CORE_READ(request, ctx);
	__u32 op = uring_op(BPF_CORE_READ(request, opcode));
	__u8 yes = 1;

	if (op == OP_COUNT || !wanted_task(bpf_get_current_task_btf()))
		return done();
	if (BPF_CORE_READ(request, flags) & REQ_F_CQE_SKIP)
		return concerns(request, op, ASKED_WANTED) ? count_unseen() : done();
	if (!bpf_map_lookup_elem(&rings, &ring) && concerns(request, op, ASKED_WATCHED))
		bpf_map_update_elem(&rings, &ring, &yes, BPF_ANY);
	return done();
}

SEC("raw_tp/io_uring_submit_req")
int on_io_uring_submit_req(struct bpf_raw_tracepoint_args *ctx)
{
	return uring_submitted((void *)ctx->args[0]);
}

/* The name before Linux 6.4. */
SEC("raw_tp/io_uring_submit_sqe")
int on_io_uring_submit_sqe(struct bpf_raw_tracepoint_args *ctx)
{
	return uring_submitted((void *)ctx->args[0]);
}

/* A new ring may have the address of an old one. */
SEC("raw_tp/io_uring_create")
int on_io_uring_create(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 ring = ctx->args[1];

	bpf_map_delete_elem(&rings, &ring);
	return 0;
}

/* A completion that finds its ring full is not reported to io_uring_complete, now or when there is
 * space. Of which request it is is not passed here: all of a remembered ring are counted. */
SEC("raw_tp/io_uring_cqe_overflow")
int on_io_uring_overflow(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 ring = ctx->args[0];

	if ((__s32)ctx->args[2] > 0 && bpf_map_lookup_elem(&rings, &ring))
		count_unseen();
	return 0;
}

#endif
