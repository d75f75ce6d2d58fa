/* The kernel side of the recorder.
 *
 * It uses tracepoints only, because locked-down kernels refuse kprobes and fentry. One tracepoint, sys_exit,
 * is enough for all system calls: the registers still hold the number and the arguments, and the return value
 * is the number of bytes transferred, so no state is kept between entry and exit. Where a call moves the file
 * position, the access began at the position after the call minus the bytes transferred, which is correct for
 * O_APPEND too.
 *
 * The loader leaves out a tracepoint that the kernel lacks, and reports it.
 *
 * | file | its part |
 * |---|---|
 * | kernel.h | the kernel's structures, as far as they are used |
 * | shared.h | the structures shared with user space |
 * | maps.h | settings and maps |
 * | sampling.h | which places are recorded |
 * | filter.h | which accesses are wanted |
 * | emit.h | events and counters |
 * | faults.h | faults on mappings |
 * | misses.h | what the page cache fetches; the tracepoints of readahead |
 * | direct.h | direct I/O |
 * | disks.h | what the disks answer |
 * | syscalls.h | the numbers of the system calls, and the registers of their arguments |
 * | uring.h | what requests of io_uring do, and those whose completion the kernel does not report |
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "shared.h"
#include "maps.h"
#include "sampling.h"
#include "filter.h"
#include "emit.h"
#include "syscalls.h"
#include "misses.h"
#include "faults.h"
#include "direct.h"
#include "disks.h"
#include "uring.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define AT_POSITION (~0ULL) /* as an offset: the file position before the call */
#define MAX_IOCBS 1024 /* of one io_submit; further ones count as lost */
#define MAX_COMPAT_IOCBS 64 /* checked until one is on a watched file */
#define MAX_IOVECS 1024 /* UIO_MAXIOV: the kernel accepts no more */

#define SUBMITTED 0x80000000 /* beside RWF_ flags: the size may not have grown yet */
#define NOWHERE (~0ULL - 1) /* an offset that is counted as dropped */

/* Another thread has closed the descriptor during the call: of which file it was is not known. */
static __noinline int closed(void)
{
	struct stats *s = my_stats();

	if (s && wanted_task(bpf_get_current_task_btf()))
		COUNT(s->unplaced, 1);
	return done();
}

/* How many of the bytes of this call on a file that was opened with O_DIRECT were direct I/O, which on_dio_complete()
 * records. What was only submitted is taken to be, unless the file system does it through the page cache. */
static __noinline __u64 recorded_already(struct inode *inode, __u32 flags, __u64 length)
{
	__u32 thread = bpf_get_current_pid_tgid();
	__u64 *done = bpf_map_lookup_elem(&direct_calls, &thread), bytes;

	if (flags & SUBMITTED)
		return done || !may_fall_back(inode) ? length : 0;
	if (!done)
		return 0;
	bytes = *done;
	bpf_map_delete_elem(&direct_calls, &thread);
	return least(bytes, length);
}

/* One side of a system call: `length` bytes at `offset` of `fd`. Appends ignore the given offset and end at
 * the end of the file; for a direct append that was only submitted, that end is not known. */
static __noinline int record_fd(__u32 fd, __u64 offset, __u64 length, __u32 op, __u32 append)
{
	struct file *file = file_of(fd);
	struct inode *inode;
	__u64 directly = 0;
	__u32 flags;
	int appends;

	if (!file)
		return closed();
	flags = BPF_CORE_READ(file, f_flags);
	if (append & RWF_NOAPPEND)
		flags &= ~config.o_append;
	appends = op == OP_WRITE && ((flags & config.o_append) || (append & RWF_APPEND));
	if (flags & config.o_direct && !config.direct_seen)
		op |= KIND_DIRECT;
	else if (!config.requests)
		return done();
	inode = BPF_CORE_READ(file, f_inode);
	if (!inode)
		return done();
	if (flags & config.o_direct && config.direct_seen)
		directly = recorded_already(inode, append, length);
	if (directly >= length)
		return done();
	if (offset == AT_POSITION)
		offset = BPF_CORE_READ(file, f_pos) - length;
	else if (appends && (append & SUBMITTED) && (op & KIND_DIRECT))
		offset = NOWHERE;
	else if (appends)
		offset = BPF_CORE_READ(inode, i_size) - length;
	/* The rest of it went through the page cache. */
	return record(file, inode, offset + directly, length - directly, op);
}

/* The offset before a call that has advanced it through a pointer. */
static __always_inline __u64 moved_offset(__u64 pointer, __u64 length)
{
	__u64 after = 0;

	if (!pointer)
		return AT_POSITION;
	if (bpf_probe_read_user(&after, sizeof(after), (void *)pointer))
		return AT_POSITION;
	return after - length;
}

/* The most that one request transfers: the kernel truncates longer ones, so lengths that a program
 * may have set to anything are truncated here as well. */
static __always_inline __u64 at_most_one_call(__u64 length)
{
	return least(length, (0x7fffffffULL >> config.page_shift) << config.page_shift);
}

#define VECTORS 32

#define UNREADABLE (~0U) /* as a length: a vector cannot be read any more */

/* The bytes of at most VECTORS vectors. Global for the verifier, and so an int; a program may change its
 * vectors after they were submitted, so the sum may be anything. */
__attribute__((noinline)) int some_vectors(__u64 vector, __u32 count)
{
	struct iovec one;
	__u64 sum = 0;
	__u32 i;

	for (i = 0; i < VECTORS && i < count; i++) {
		if (bpf_probe_read_user(&one, sizeof(one), (void *)(vector + i * sizeof(one))))
			return UNREADABLE;
		sum += one.iov_len;
	}
	return at_most_one_call(sum);
}

static __noinline __u64 iovec_bytes(__u64 vector, __u64 count)
{
	__u64 sum = 0;
	__u32 i, some;

	for (i = 0; i < MAX_IOVECS && i < count; i += VECTORS) {
		some = some_vectors(vector + i * sizeof(struct iovec), count - i);
		if (some == UNREADABLE)
			return UNREADABLE;
		sum += some;
	}
	return at_most_one_call(sum);
}

/* One iocb of a successful io_submit. Its completion is not seen, so a read is truncated at the end of the
 * file, and an access that fails later is recorded. Global, so that the verifier checks it once and not in
 * every iteration of the loop. */
__attribute__((noinline)) int submitted(__u64 pointers, __u32 index)
{
	struct file *file;
	struct iocb iocb;
	__u64 pointer, length, size;
	__u32 op;

	if (bpf_probe_read_user(&pointer, sizeof(pointer), (void *)(pointers + index * 8ULL)) ||
	    bpf_probe_read_user(&iocb, sizeof(iocb), (void *)pointer)) {
		if (wanted_task(bpf_get_current_task_btf()))
			count_lost(1);
		return 0;
	}
	switch (iocb.aio_lio_opcode) {
	case IOCB_CMD_PREAD:
	case IOCB_CMD_PREADV:
		op = OP_READ;
		break;
	case IOCB_CMD_PWRITE:
	case IOCB_CMD_PWRITEV:
		op = OP_WRITE;
		break;
	default:
		return 0;
	}
	length = at_most_one_call(iocb.aio_nbytes);
	if (iocb.aio_lio_opcode == IOCB_CMD_PREADV || iocb.aio_lio_opcode == IOCB_CMD_PWRITEV)
		length = iovec_bytes(iocb.aio_buf, iocb.aio_nbytes);
	if (length == UNREADABLE) {
		if (wanted_fd(iocb.aio_fildes))
			count_lost(1);
		return 0;
	}
	file = file_of(iocb.aio_fildes);
	if (!file)
		return closed();
	if (op == OP_READ) {
		size = BPF_CORE_READ(file, f_inode, i_size);
		if ((__u64)iocb.aio_offset >= size)
			return 0;
		length = least(length, size - iocb.aio_offset);
	}
	return record_fd(iocb.aio_fildes, iocb.aio_offset, length, op,
			 iocb.aio_rw_flags | SUBMITTED);
}

/* The same for one iocb behind 32-bit pointers. Global for the reason given at submitted(). */
__attribute__((noinline)) int watched_iocb(__u64 pointers, __u32 index)
{
	struct iocb iocb;
	__u32 pointer;

	if (bpf_probe_read_user(&pointer, sizeof(pointer), (void *)(pointers + index * 4ULL)) ||
	    bpf_probe_read_user(&iocb, sizeof(iocb), (void *)(__u64)pointer))
		return 0;
	return watched_fd(iocb.aio_fildes);
}

/* A call through another table than the native one (32-bit, x32): its arguments are not decoded, but calls on
 * watched files are counted. */
static __noinline int compat_call(struct syscall *call, __u64 result)
{
	enum compat_files files = compat_files(call->number);
	struct stats *s;
	int seen = 0;
	__u32 i;

	if (files == FILES_NONE || !wanted_task(bpf_get_current_task_btf()))
		return done();
	if (files == FILES_OF_IOCBS) {
		for (i = 0; i < MAX_COMPAT_IOCBS && i < result && !seen; i++)
			seen = watched_iocb(call->args[2], i);
	} else {
		seen = watched_fd(call->args[0]);
		if (!seen && files == FILES_FIRST_SECOND)
			seen = watched_fd(call->args[1]);
		if (!seen && files == FILES_FIRST_THIRD)
			seen = watched_fd(call->args[2]);
	}
	s = my_stats();
	if (s && seen)
		COUNT(s->compat, 1);
	return done();
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long result)
{
	struct syscall call;
	__u64 length = result;
	int compat;
	__u32 i;

	if (result <= 0 || !regs)
		return 0;
	call.number = syscall_number(regs);
	compat = is_compat(bpf_get_current_task_btf());
	if (compat || is_x32(call.number)) {
		syscall_args(regs, &call, compat);
		return compat_call(&call, length);
	}
	if (!transfers(call.number))
		return 0;
	syscall_args(regs, &call, 0);

	switch (call.number) {
	case NR_read:
	case NR_readv:
		return record_fd(call.args[0], AT_POSITION, length, OP_READ, 0);
	case NR_write:
	case NR_writev:
		return record_fd(call.args[0], AT_POSITION, length, OP_WRITE, 0);
	case NR_pread64:
	case NR_preadv:
		return record_fd(call.args[0], call.args[3], length, OP_READ, 0);
	case NR_pwrite64:
	case NR_pwritev:
		return record_fd(call.args[0], call.args[3], length, OP_WRITE, 0);
	case NR_preadv2:
		return record_fd(call.args[0], call.args[3], length, OP_READ, 0);
	case NR_pwritev2:
		return record_fd(call.args[0], call.args[3], length, OP_WRITE,
				 call.args[5] & (RWF_APPEND | RWF_NOAPPEND));
	case NR_sendfile:
		record_fd(call.args[1], moved_offset(call.args[2], length), length, OP_READ, 0);
		return record_fd(call.args[0], AT_POSITION, length, OP_WRITE, 0);
	case NR_splice:
	case NR_copy_file_range:
		record_fd(call.args[0], moved_offset(call.args[1], length), length, OP_READ, 0);
		return record_fd(call.args[2], moved_offset(call.args[3], length), length, OP_WRITE, 0);
	case NR_io_submit:
		for (i = 0; i < MAX_IOCBS && i < length; i++)
			submitted(call.args[2], i);
		end_direct_call();
		if (length > MAX_IOCBS && wanted_task(bpf_get_current_task_btf()))
			count_lost(length - MAX_IOCBS);
		return 0;
	}
	return 0;
}

/* One side of a request of io_uring that ended with `length` bytes, up to `end` of the file. `iocb` is its address. */
static __noinline int record_ended(struct file *file, __u64 end, __u64 length, __u32 kind, __u64 iocb)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);

	if (!inode)
		return done();
	if (BPF_CORE_READ(file, f_flags) & config.o_direct) {
		if (!config.direct_seen)
			kind |= KIND_DIRECT;
		else if (!may_fall_back(inode) || !bpf_map_delete_elem(&direct_iocbs, &iocb) ||
			 !config.requests)
			return done();
	} else if (!config.requests) {
		return done();
	}
	return record(file, inode, end - length, length, kind);
}

/* Where the kernel's splice ended: in the request, or at the file's position. */
static __always_inline __u64 spliced_to(__s64 offset, struct file *file)
{
	return offset == -1 ? (__u64)BPF_CORE_READ(file, f_pos) : (__u64)offset;
}

static __always_inline struct file *spliced_file(struct io_splice *splice)
{
	struct io_rsrc_node *node;

	if (!(BPF_CORE_READ(splice, flags) & SPLICE_F_FD_IN_FIXED))
		return file_of(BPF_CORE_READ(splice, splice_fd_in));
	/* A registered file; older kernels do not keep it in the request. */
	if (!bpf_core_field_exists(splice->rsrc_node) || !bpf_core_type_exists(struct io_rsrc_node))
		return 0;
	node = BPF_CORE_READ(splice, rsrc_node);
	return (void *)(BPF_CORE_READ(node, file_ptr) & ~7ULL);
}

/* A splice is a read of one file or a write to another; the other side is a pipe. The file that is read is
 * identified by its descriptor, which may be closed by now. */
static __noinline int uring_spliced(struct io_kiocb *request, __u64 length)
{
	struct io_splice *splice = (void *)request; /* at the start, like kiocb */
	struct file *in, *out;
	struct stats *s;

	if (!bpf_core_type_exists(struct io_splice))
		goto unseen;
	out = BPF_CORE_READ(splice, file_out);
	if (out && (BPF_CORE_READ(out, f_inode, i_mode) & S_IFMT) != S_IFIFO)
		return record_ended(out, spliced_to(BPF_CORE_READ(splice, off_out), out), length,
				    OP_WRITE, 0);
	in = spliced_file(splice);
	if (in)
		return record_ended(in, spliced_to(BPF_CORE_READ(splice, off_in), in), length,
				    OP_READ, 0);
unseen:
	s = my_stats();
	if (s && wanted_task(bpf_get_current_task_btf()))
		COUNT(s->splices, 1);
	return done();
}

/* The result is read from the request, where every kernel stores it that passes the request to this
 * tracepoint; its other arguments have changed over time. */
SEC("raw_tp/io_uring_complete")
int on_io_uring_complete(struct bpf_raw_tracepoint_args *ctx)
{
	struct io_kiocb *request = (void *)ctx->args[1];
	struct kiocb *kiocb = (void *)request; /* io_rw, its first member kiocb, is at the start */
	struct file *file;
	__s32 result;
	__u32 kind;

	if (!request)
		return 0;
	result = BPF_CORE_READ(request, cqe.res);
	if (result <= 0)
		return 0;
	kind = uring_op(BPF_CORE_READ(request, opcode));
	if (kind == OPS_SPLICE)
		return uring_spliced(request, result);
	if (kind >= OP_COUNT)
		return 0;
	file = BPF_CORE_READ(kiocb, ki_filp);
	if (!file)
		return 0;
	return record_ended(file, BPF_CORE_READ(kiocb, ki_pos), result, kind, (__u64)kiocb);
}

SEC("raw_tp/sched_process_fork")
int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (void *)ctx->args[0], *child = (void *)ctx->args[1];
	__u32 from = BPF_CORE_READ(parent, tgid), to = BPF_CORE_READ(child, tgid);
	__u8 yes = 1;

	if (from != to && bpf_map_lookup_elem(&processes, &from) &&
	    bpf_map_update_elem(&processes, &to, &yes, BPF_ANY))
		count_lost(1);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	__u32 pid = BPF_CORE_READ(task, tgid);

	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		bpf_map_delete_elem(&processes, &pid);
	return 0;
}
