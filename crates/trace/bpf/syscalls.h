/* System calls that transfer file data: their numbers, and where number and arguments lie when
 * the call returns. One part per architecture. */
#ifndef FRAGMEND_SYSCALLS_H
#define FRAGMEND_SYSCALLS_H

struct syscall {
	__u64 number;
	__u64 args[6];
};

#if defined(__TARGET_ARCH_x86)

enum {
	NR_read = 0,
	NR_write = 1,
	NR_pread64 = 17,
	NR_pwrite64 = 18,
	NR_readv = 19,
	NR_writev = 20,
	NR_sendfile = 40,
	NR_io_submit = 209,
	NR_splice = 275,
	NR_preadv = 295,
	NR_pwritev = 296,
	NR_copy_file_range = 326,
	NR_preadv2 = 327,
	NR_pwritev2 = 328,
};

#define X32_BIT 0x40000000ULL
#define TS_COMPAT 0x2

static __always_inline __u64 syscall_number(struct pt_regs *regs)
{
	return regs->orig_ax;
}

static __always_inline int is_compat(struct task_struct *task)
{
	return task->thread_info.status & TS_COMPAT;
}

static __always_inline void syscall_args(struct pt_regs *regs, struct syscall *call, int compat)
{
	if (compat) {
		call->args[0] = (__u32)regs->bx;
		return;
	}
	call->args[0] = regs->di;
	call->args[1] = regs->si;
	call->args[2] = regs->dx;
	call->args[3] = regs->r10;
	call->args[4] = regs->r8;
	call->args[5] = regs->r9;
}

/* i386 */
static __always_inline int transfers_compat(__u64 number)
{
	switch (number) {
	case 3: /* read */
	case 4: /* write */
	case 145: /* readv */
	case 146: /* writev */
	case 180: /* pread64 */
	case 181: /* pwrite64 */
	case 313: /* splice */
	case 333: /* preadv */
	case 334: /* pwritev */
	case 377: /* copy_file_range */
	case 378: /* preadv2 */
	case 379: /* pwritev2 */
		return 1;
	}
	return 0;
}

#elif defined(__TARGET_ARCH_arm64)

enum {
	NR_io_submit = 2,
	NR_read = 63,
	NR_write = 64,
	NR_readv = 65,
	NR_writev = 66,
	NR_pread64 = 67,
	NR_pwrite64 = 68,
	NR_preadv = 69,
	NR_pwritev = 70,
	NR_sendfile = 71,
	NR_splice = 76,
	NR_copy_file_range = 285,
	NR_preadv2 = 286,
	NR_pwritev2 = 287,
};

#define TIF_32BIT_BIT 22

static __always_inline __u64 syscall_number(struct pt_regs *regs)
{
	return regs->syscallno;
}

static __always_inline int is_compat(struct task_struct *task)
{
	return (task->thread_info.flags >> TIF_32BIT_BIT) & 1;
}

static __always_inline void syscall_args(struct pt_regs *regs, struct syscall *call, int compat)
{
	call->args[0] = regs->orig_x0;
	call->args[1] = regs->regs[1];
	call->args[2] = regs->regs[2];
	call->args[3] = regs->regs[3];
	call->args[4] = regs->regs[4];
	call->args[5] = regs->regs[5];
}

/* 32-bit Arm */
static __always_inline int transfers_compat(__u64 number)
{
	switch (number) {
	case 3: /* read */
	case 4: /* write */
	case 145: /* readv */
	case 146: /* writev */
	case 180: /* pread64 */
	case 181: /* pwrite64 */
	case 340: /* splice */
	case 361: /* preadv */
	case 362: /* pwritev */
	case 391: /* copy_file_range */
	case 392: /* preadv2 */
	case 393: /* pwritev2 */
		return 1;
	}
	return 0;
}

#endif

static __always_inline int transfers(__u64 number)
{
	switch (number) {
	case NR_read:
	case NR_write:
	case NR_pread64:
	case NR_pwrite64:
	case NR_readv:
	case NR_writev:
	case NR_sendfile:
	case NR_io_submit:
	case NR_splice:
	case NR_preadv:
	case NR_pwritev:
	case NR_copy_file_range:
	case NR_preadv2:
	case NR_pwritev2:
		return 1;
	}
	return 0;
}

#endif
