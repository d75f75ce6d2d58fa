/* The kernel side of the recorder.
 *
 * Everything hangs on tracepoints, because locked-down kernels refuse kprobes and fentry. One
 * tracepoint, sys_exit, is enough for all system calls: the registers still hold the number and
 * the arguments, and the return value is the number of bytes really transferred, so nothing has
 * to be remembered between entry and exit. Where a call moves the file position, the access
 * began at the position after the call less what was transferred, which is right for O_APPEND
 * too.
 *
 * A tracepoint that the kernel lacks is left out by the loader, which says so.
 *
 * | file | its part |
 * |---|---|
 * | kernel.h | the kernel's structures, as far as they are used |
 * | shared.h | what passes to and from user space |
 * | maps.h | settings and maps |
 * | filter.h | which accesses are wanted |
 * | emit.h | events and counters |
 * | pagecache.h | faults on mappings, and readahead |
 * | syscalls.h | the numbers of the system calls, and where their arguments lie |
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "shared.h"
#include "maps.h"
#include "filter.h"
#include "emit.h"
#include "pagecache.h"
#include "syscalls.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define AT_POSITION (~0ULL) /* offset: where the file position was before the call */
#define MAX_IOCBS 1024 /* of one io_submit; more count as lost */
#define MAX_IOVECS 256

static __always_inline struct file *file_of(__u32 fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct file *file = 0;
	struct fdtable *table;

	if (!task->files)
		return 0;
	table = task->files->fdt;
	if (!table || fd >= table->max_fds)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd);
	return file;
}

/* One side of a system call: `length` bytes at `offset` of `fd`. Appends ignore the offset that
 * was asked for and end at the end of the file. */
static __noinline int record_fd(__u32 fd, __u64 offset, __u64 length, __u32 op, __u32 append)
{
	struct file *file = file_of(fd);
	struct inode *inode;
	__u32 flags;

	if (!file)
		return done();
	flags = BPF_CORE_READ(file, f_flags);
	if (flags & config.o_direct)
		op |= KIND_DIRECT;
	else if (config.level_miss)
		return done();
	inode = BPF_CORE_READ(file, f_inode);
	if (!inode)
		return done();
	if (append & RWF_NOAPPEND)
		flags &= ~config.o_append;
	if (offset == AT_POSITION)
		offset = BPF_CORE_READ(file, f_pos) - length;
	else if (op == OP_WRITE && ((flags & config.o_append) || (append & RWF_APPEND)))
		offset = BPF_CORE_READ(inode, i_size) - length;
	return record(file, inode, offset, length, op);
}

/* The offset before a call that got a pointer to it and moved it on. */
static __always_inline __u64 moved_offset(__u64 pointer, __u64 length)
{
	__u64 after = 0;

	if (!pointer)
		return AT_POSITION;
	if (bpf_probe_read_user(&after, sizeof(after), (void *)pointer))
		return AT_POSITION;
	return after - length;
}

static __noinline __u64 iovec_bytes(__u64 vector, __u64 count)
{
	struct iovec one;
	__u64 sum = 0;
	int i;

	for (i = 0; i < MAX_IOVECS && i < count; i++) {
		if (bpf_probe_read_user(&one, sizeof(one), (void *)(vector + i * sizeof(one))))
			break;
		sum += one.iov_len;
	}
	return sum;
}

/* One iocb of a successful io_submit. Its completion is not seen, so a read is cut at the end of
 * the file. Global, so that the verifier checks it once and not once per turn of the loop. */
__attribute__((noinline)) int submitted(__u64 pointers, __u32 index)
{
	struct file *file;
	struct iocb iocb;
	__u64 pointer, length, size;
	__u32 op;

	if (bpf_probe_read_user(&pointer, sizeof(pointer), (void *)(pointers + index * 8ULL)) ||
	    bpf_probe_read_user(&iocb, sizeof(iocb), (void *)pointer)) {
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
	length = iocb.aio_nbytes;
	if (iocb.aio_lio_opcode == IOCB_CMD_PREADV || iocb.aio_lio_opcode == IOCB_CMD_PWRITEV)
		length = iovec_bytes(iocb.aio_buf, length);
	file = file_of(iocb.aio_fildes);
	if (!file)
		return 0;
	if (op == OP_READ) {
		size = BPF_CORE_READ(file, f_inode, i_size);
		if ((__u64)iocb.aio_offset >= size)
			return 0;
		length = least(length, size - iocb.aio_offset);
	}
	return record_fd(iocb.aio_fildes, iocb.aio_offset, length, op, iocb.aio_rw_flags);
}

static __noinline int compat_call(struct syscall *call)
{
	struct inode *inode = 0;
	struct file *file;
	struct stats *s;
	__u32 device;

	if (!transfers_compat(call->number))
		return done();
	file = file_of(call->args[0]);
	if (file)
		inode = BPF_CORE_READ(file, f_inode);
	if (!inode)
		return done();
	device = BPF_CORE_READ(inode, i_sb, s_dev);
	if (!bpf_map_lookup_elem(&devices, &device) || !wanted_task(bpf_get_current_task_btf()))
		return done();
	s = my_stats();
	if (s)
		s->compat++;
	return done();
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long result)
{
	struct syscall call;
	__u64 length = result;
	__u32 i;

	if (result <= 0 || !regs)
		return 0;
	call.number = syscall_number(regs);
	if (is_compat(bpf_get_current_task_btf())) {
		syscall_args(regs, &call, 1);
		return compat_call(&call);
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
		return record_fd(call.args[0], call.args[3], length, OP_WRITE, call.args[5]);
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
		if (length > MAX_IOCBS)
			count_lost(length - MAX_IOCBS);
		return 0;
	}
	return 0;
}

/* The result is taken from the request, where it is on every kernel that passes the request to
 * this tracepoint; what else it passes has changed over time. */
SEC("raw_tp/io_uring_complete")
int on_io_uring_complete(struct bpf_raw_tracepoint_args *ctx)
{
	struct io_kiocb *request = (void *)ctx->args[1];
	struct kiocb *kiocb = (void *)request; /* io_rw, its first member kiocb, lies at the start */
	struct inode *inode;
	struct file *file;
	__s32 result;
	__u32 kind;

	if (!request)
		return 0;
	switch (BPF_CORE_READ(request, opcode)) {
	case IORING_OP_READV:
	case IORING_OP_READ_FIXED:
	case IORING_OP_READ:
	case IORING_OP_READ_MULTISHOT:
	case IORING_OP_READV_FIXED:
		kind = OP_READ;
		break;
	case IORING_OP_WRITEV:
	case IORING_OP_WRITE_FIXED:
	case IORING_OP_WRITE:
	case IORING_OP_WRITEV_FIXED:
		kind = OP_WRITE;
		break;
	default:
		return 0;
	}
	result = BPF_CORE_READ(request, cqe.res);
	file = BPF_CORE_READ(kiocb, ki_filp);
	if (result <= 0 || !file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	if (!inode)
		return 0;
	if (BPF_CORE_READ(file, f_flags) & config.o_direct)
		kind |= KIND_DIRECT;
	else if (config.level_miss)
		return 0;
	return record(file, inode, BPF_CORE_READ(kiocb, ki_pos) - result, result, kind);
}

SEC("raw_tp/sched_process_fork")
int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (void *)ctx->args[0], *child = (void *)ctx->args[1];
	__u32 from = BPF_CORE_READ(parent, tgid), to = BPF_CORE_READ(child, tgid);
	__u8 yes = 1;

	if (from != to && bpf_map_lookup_elem(&processes, &from))
		bpf_map_update_elem(&processes, &to, &yes, BPF_ANY);
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
